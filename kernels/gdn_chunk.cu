// gdn_chunk.cu: the gated delta rule by chunks of 64 tokens on the matrix units, for policy `fast`.
//
// Purpose:    region `gdn_core` (and `gdn_commit`) of several rows under `fast`: `gdn_chunk_prepare` makes what
//             depends on no state, for every group and head at once; `gdn_chunk_core` walks the groups of a
//             sequence and carries the state in registers.
// Grid:       gdn_chunk_prepare: x = tiles (rows of one group in a span), y = value heads; gdn_chunk_core: x =
//             pieces of 64 value columns, y = value heads, z = spans. 128 threads a block; a warp owns 16 value
//             columns, which never meet others.
// Shapes:     q, k [rows][key_heads·D], v, out [rows][value_heads·value_dim], value_dim a multiple of 16; chunks
//             [tile][value_head][4][64][64] BF16: T, P as high and low parts, 16-byte pieces swizzled; rates
//             [tile][value_head][64] of (β, e^G, e^{G_end − G}, 0).
// Accumulator: FP32 of mma.sync; FP32 operands (state, u, T, P) are two BF16 parts each, products of two low
//             parts are left out; G in FP64.
// Order:      u = T·(β(v − e^G·S0ᵀk)), T = (I + A)⁻¹ by blocks of 16, on the diagonal by substitution in FP32,
//             A_il = β_i e^{G_i−G_l}(k_i·k_l) for l < i; o = scale·e^G·S0ᵀq + P·u, P_il = scale·e^{G_i−G_l}
//             (q_i·k_l) for l ≤ i;
//             S = e^{G_63}·S0 + Σ_l k_l (e^{G_63−G_l} u_l)ᵀ. Rows of the open group keep the u they have.
// Invariance: none promised: a row's bits depend on how its group was cut; the same cut gives the same bits.
// Reference:  backend/cpu/gdn_core.rs, the recurrence in FP64.
// Gate:       core-reference-gdn, reference-qwen3-5

// Offsets in bytes into a sequence's memory, and the layer's sizes (as in gdn_inputs.cu).
struct GdnSlot {
    u64 boundary, u, decay, k, conv;
    u32 key_heads, value_heads, key_dim, value_dim, ring, taps;
};

DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE void load_matrices_transposed(u32 (&d)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

DEVICE u32 transpose_matrix(u32 x) {
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Two FP32 values as BF16 pairs whose sum they are, but for 2^-17 of them.
DEVICE void split(float x, float y, u32 &high, u32 &low) {
    high = f32x2_to_bf16x2(x, y);
    low = f32x2_to_bf16x2(x - bf16_low(high), y - bf16_high(high));
}

// Two neighbouring accumulator tiles as the A operand of 16 k: (high, low).
DEVICE void split_operand(const float (&a)[4], const float (&b)[4], u32 (&high)[4], u32 (&low)[4]) {
    split(a[0], a[1], high[0], low[0]);
    split(a[2], a[3], high[1], low[1]);
    split(b[0], b[1], high[2], low[2]);
    split(b[2], b[3], high[3], low[3]);
}

// Offset of 16-byte piece `piece` of row `row` of a tile whose rows have `PIECES` of them.
template <int PIECES> DEVICE u32 piece_of(u32 row, u32 piece) {
    constexpr u32 MASK = PIECES % 8 == 0 ? 7 : PIECES % 4 == 0 ? 3 : PIECES % 2 == 0 ? 1 : 0;
    return (row * PIECES + (piece ^ (row & MASK))) * 16;
}

// Bytes of a 64 × 64 BF16 matrix, and of the four of a tile and head.
constexpr u32 SQUARE = 64 * 64 * 2, CHUNK = 4 * SQUARE;

// Rows of a tile: of the open group's past before `first`, of the step before `last`, none after.
template <int D> struct KeyRows {
    const u16 *old, *rows;
    u32 pitch;
    DEVICE void fetch(u32 to, const GroupTile &tile, bool past) const {
        constexpr int PIECES = D / 8;
        for (u32 e = threadIdx.x; e < 64 * PIECES; e += 128) {
            u32 i = e / PIECES, piece = e % PIECES;
            bool own = i >= tile.first && i < tile.first + tile.rows, kept = past && i < tile.first;
            const u16 *from = kept ? old + i * D : rows + (u64)(tile.row + (own ? i - tile.first : 0)) * pitch;
            copy_async(to + piece_of<PIECES>(i, piece), from + piece * 8, own || kept);
        }
    }
};

// ---- what depends on no state --------------------------------------------------------------------

DEVICE float exp_quick(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896340736f));
    return y;
}

// A block on the diagonal, transposed: floats between its rows, and of all four.
constexpr u32 DIAGONAL = 20, DIAGONALS = 4 * 16 * DIAGONAL;

// d += a·b with both operands in two parts.
DEVICE void mma_parts(float (&d)[4], const u32 (&high)[4], const u32 (&low)[4], u32 b0, u32 b1, u32 c0, u32 c1) {
    mma(d, high, b0, b1);
    mma(d, low, b0, b1);
    mma(d, high, c0, c1);
}

// Shared memory: keys and queries [64][D], whose place T takes; A below the diagonal blocks in two parts;
// the diagonal blocks. By blocks of 16: T_jj by substitution, T_ij = −T_ii·Σ_{j ≤ k < i} A_ik·T_kj, a block
// column a warp, transposed so that T_kj stays in registers.
template <int D>
DEVICE void gdn_chunk_prepare(const Step &step, const u16 *q, const u16 *k, const float *log_decay, const float *beta,
                              u8 *chunks, float4 *rates, double *running, const GdnSlot &s) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ double decay[64];
    __shared__ float rate[64];
    constexpr int PIECES = D / 8;
    constexpr u32 ROWS = 64 * D * 2, PAIR = 2 * ROWS > 2 * SQUARE ? 2 * ROWS : 2 * SQUARE;
    begin_kernel();
    GroupTile tile = step.tiles[blockIdx.x];
    SpanInfo span = step.spans[tile.span];
    u32 head = blockIdx.y, heads = s.value_heads, key_head = head / (heads / s.key_heads), tid = threadIdx.x;
    u32 lane = tid & 31, g = lane >> 2, t = lane & 3, first = tile.first, last = first + tile.rows;
    // Warps have unequal work; neighbouring blocks give it to different ones.
    u32 warp = ((tid >> 5) + blockIdx.x + blockIdx.y) & 3;
    u32 parity = (span.position + tile.row - span.first_row) / 64 & 1, keys = s.key_heads * D;
    u32 k_tile = shared_address(memory), q_tile = k_tile + ROWS, t_tile = k_tile, a_tile = k_tile + PAIR;
    float *diagonal = (float *)(memory + PAIR + 2 * SQUARE) + warp * 16 * DIAGONAL;
    u64 slot = (u64)blockIdx.x * heads + head;
    const u16 *old = (const u16 *)(span.gdn + s.k) + (u64)(parity * s.key_heads + key_head) * 64 * D;
    KeyRows<D>{old, k + key_head * D, keys}.fetch(k_tile, tile, true);
    KeyRows<D>{old, q + key_head * D, keys}.fetch(q_tile, tile, false);
    copy_async_commit();

    // Running decays, two rows a lane.
    if (warp == 0) {
        const double *kept = (const double *)(span.gdn + s.decay) + (parity * heads + head) * 64;
        double sum[2], base = first ? kept[first - 1] : 0.0;
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
            u32 i = 2 * lane + r;
            bool own = i >= first && i < last;
            u64 at = (u64)(tile.row + (own ? i - first : 0)) * heads + head;
            sum[r] = own ? (double)log_decay[at] : 0.0;
            rate[i] = own ? beta[at] : 0.0f;
        }
        sum[1] = sum[0] + sum[1];
        double before = sum[1];
#pragma unroll
        for (int offset = 1; offset < 32; offset <<= 1) {
            double other = __shfl_up_sync(~0u, before, offset);
            if (lane >= offset) before = before + other;
        }
        before = before - sum[1] + base;
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
            u32 i = 2 * lane + r;
            double value = i < first ? kept[i] : before + sum[r];
            decay[i] = value;
            if (i >= first && i < last) running[(u64)(tile.row + i - first) * heads + head] = value;
        }
    }
    copy_async_wait<0>();
    __syncthreads();
    if (tid < 64) {
        bool there = tid < last;
        float tail = there ? exp_fixed((float)(decay[last - 1] - decay[tid])) : 0.0f;
        rates[slot * 64 + tid] = make_float4(rate[tid], there ? exp_fixed((float)decay[tid]) : 0.0f, tail, 0.0f);
    }

    // Rows 16·warp … of both products, keys up to the diagonal.
    float of_k[8][4], of_q[8][4];
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) of_k[n][i] = of_q[n][i] = 0.0f;
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
        u32 ak[4], aq[4], at = piece_of<PIECES>(warp * 16 + (lane & 15), 2 * kk + (lane >> 4));
        load_matrices(ak, k_tile + at);
        load_matrices(aq, q_tile + at);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if (n > (int)warp) continue;
            u32 b[4];
            load_matrices(b, k_tile + piece_of<PIECES>(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * kk + ((lane >> 3) & 1)));
            mma(of_k[2 * n], ak, b[0], b[1]);
            mma(of_k[2 * n + 1], ak, b[2], b[3]);
            mma(of_q[2 * n], aq, b[0], b[1]);
            mma(of_q[2 * n + 1], aq, b[2], b[3]);
        }
    }
    __syncthreads();
    for (u32 e = tid; e < 2 * SQUARE / 16; e += 128) ((uint4 *)memory)[e] = make_uint4(0, 0, 0, 0);
    u8 *chunk = chunks + slot * CHUNK;
    float scale = 1.0f / sqrtf((float)D);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        bool below = n / 2 <= (int)warp, inside = n / 2 == (int)warp;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            u32 i = warp * 16 + g + 8 * r, l = 8 * n + 2 * t, high, low, at = piece_of<8>(i, n) + 4 * t;
            bool own = i >= first && i < last;
            float x[2] = {0.0f, 0.0f}, y[2] = {0.0f, 0.0f};
            if (below)
#pragma unroll
                for (u32 c = 0; c < 2; ++c)
                    if (own && l + c <= i) {
                        float since = exp_quick((float)(decay[i] - decay[l + c]));
                        x[c] = l + c < i ? (rate[i] * since) * of_k[n][2 * r + c] : 0.0f;
                        y[c] = (scale * since) * of_q[n][2 * r + c];
                    }
            split(y[0], y[1], high, low);
            *(u32 *)(chunk + 2 * SQUARE + at) = high;
            *(u32 *)(chunk + 3 * SQUARE + at) = low;
            if (inside) {
                diagonal[(l & 15) * DIAGONAL + (i & 15)] = x[0];
                diagonal[((l + 1) & 15) * DIAGONAL + (i & 15)] = x[1];
            } else if (below) {
                split(x[0], x[1], high, low);
                *(u32 *)(memory + PAIR + at) = high;
                *(u32 *)(memory + PAIR + SQUARE + at) = low;
            }
        }
    }
    __syncthreads();

    // The diagonal block of T, a column a lane.
    if (lane < 16) {
        float column[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) column[i] = i == (int)lane ? 1.0f : 0.0f;
#pragma unroll
        for (int l = 0; l < 15; ++l) {
            float known = -column[l];
#pragma unroll
            for (int i4 = (l + 1) / 4; i4 < 4; ++i4) {
                float4 w = *(const float4 *)(diagonal + l * DIAGONAL + 4 * i4);
                float weight[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    if (4 * i4 + n > l) column[4 * i4 + n] = __fmaf_rn(weight[n], known, column[4 * i4 + n]);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            u16 high = f32_to_bf16(column[i]);
            u8 *to = memory + piece_of<8>(16 * warp + i, 2 * warp + (lane >> 3)) + 2 * (lane & 7);
            *(u16 *)to = high;
            *(u16 *)(to + SQUARE) = f32_to_bf16(column[i] - bf16_to_f32(high));
        }
    }
    __syncthreads();
    // What is below it. T_kj, transposed, as operands (k of the products along its rows).
    u32 high[4][4], low[4][4], row = (lane & 7) + ((lane >> 4) << 3);
    u32 own = t_tile + piece_of<8>(16 * warp + row, 2 * warp + ((lane >> 3) & 1));
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        if (k < (int)warp) continue;
        if (k == (int)warp) {
            load_matrices_transposed(high[k], own);
            load_matrices_transposed(low[k], own + SQUARE);
        }
        // With T_kj known, all of Σ_k' A_ik'·T_k'j for i = k + 1 is.
        int i = k + 1;
        float y[2][4] = {}, z[2][4] = {};
#pragma unroll
        for (int m = 0; m < 3; ++m) {
            if (m < (int)warp || m > k) continue;
            u32 b[4], c[4], from = a_tile + piece_of<8>(16 * i + row, 2 * m + ((lane >> 3) & 1));
            load_matrices(b, from);
            load_matrices(c, from + SQUARE);
            mma_parts(y[0], high[m], low[m], b[0], b[1], c[0], c[1]);
            mma_parts(y[1], high[m], low[m], b[2], b[3], c[2], c[3]);
        }
        u32 yh[4], yl[4], b[4], c[4], from = t_tile + piece_of<8>(16 * i + row, 2 * i + ((lane >> 3) & 1));
        split_operand(y[0], y[1], yh, yl);
        load_matrices(b, from);
        load_matrices(c, from + SQUARE);
        mma_parts(z[0], yh, yl, b[0], b[1], c[0], c[1]);
        mma_parts(z[1], yh, yl, b[2], b[3], c[2], c[3]);
#pragma unroll
        for (int n = 0; n < 4; ++n) z[0][n] = -z[0][n], z[1][n] = -z[1][n];
        split_operand(z[0], z[1], high[i], low[i]);
#pragma unroll
        for (u32 n = 0; n < 4; ++n) {
            u8 *to = memory + piece_of<8>(16 * i + 8 * (n >> 1) + g, 2 * warp + (n & 1)) + 4 * t;
            *(u32 *)to = transpose_matrix(high[i][n]);
            *(u32 *)(to + SQUARE) = transpose_matrix(low[i][n]);
        }
    }
    __syncthreads();
    for (u32 e = tid; e < 2 * SQUARE / 16; e += 128) ((uint4 *)chunk)[e] = ((const uint4 *)memory)[e];
}

// ---- the state's walk ------------------------------------------------------------------------------

// What a stage of shared memory holds: keys and queries [64][D], T and P, values [64][64], rates.
template <int D> struct StageLayout {
    static constexpr u32 Q = 64 * D * 2, SQUARES = 2 * Q, V = SQUARES + CHUNK, RATES = V + SQUARE, BYTES = RATES + 1024;
};

// Everything of a warp is transposed: value columns are the M side, tokens or key dimensions the N side,
// so that a result becomes the next product's operand without leaving its registers.
template <int D>
DEVICE void gdn_chunk_core(const Step &step, const u16 *q, const u16 *k, const u16 *v, const u8 *chunks,
                           const float4 *rates, u16 *out, u32 ldo, const GdnSlot &s) {
    extern __shared__ __align__(128) u8 memory[];
    using Stage = StageLayout<D>;
    constexpr int PIECES = D / 8, NS = D / 8;
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    if (span.rows < 2) return;
    u32 head = blockIdx.y, heads = s.value_heads, key_head = head / (heads / s.key_heads), keys = s.key_heads * D;
    u32 width = s.value_dim, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    u32 c0 = blockIdx.x * 64, column = c0 + warp * 16 + g, values = heads * width;
    bool active = c0 + warp * 16 < width;
    u32 tile_index = 0;
    while (step.tiles[tile_index].span != blockIdx.z) ++tile_index;
    auto boundary = [&](u32 p) { return (float *)(span.gdn + s.boundary) + (u64)(p * heads + head) * D * width; };
    auto u_rows = [&](u32 p) { return (float *)(span.gdn + s.u) + (u64)(p * heads + head) * 64 * width; };
    u32 end = span.position + span.rows, last_group = (end - 1) / 64, open_group = end / 64;
    u32 start_parity = span.position / 64 & 1;
    const u16 *old = (const u16 *)(span.gdn + s.k) + (u64)(start_parity * s.key_heads + key_head) * 64 * D;
    KeyRows<D> key_rows{old, k + key_head * D, keys}, query_rows{old, q + key_head * D, keys};
    u32 base = shared_address(memory);

    auto fetch = [&](u32 stage, u32 index, const GroupTile &tile) {
        u32 to = base + stage * Stage::BYTES;
        key_rows.fetch(to, tile, true);
        query_rows.fetch(to + Stage::Q, tile, false);
        u64 slot = (u64)index * heads + head;
        const u8 *chunk = chunks + slot * CHUNK;
#pragma unroll 8
        for (u32 e = tid; e < CHUNK / 16; e += 128) copy_async(to + Stage::SQUARES + e * 16, chunk + e * 16, true);
#pragma unroll
        for (u32 e = tid; e < 64 * 8; e += 128) {
            u32 i = e >> 3, piece = e & 7;
            bool own = i >= tile.first && i < tile.first + tile.rows && c0 + piece * 8 < width;
            const u16 *from = v + (u64)(tile.row + (own ? i - tile.first : 0)) * values + head * width + (own ? c0 + piece * 8 : 0);
            copy_async(to + Stage::V + piece_of<8>(i, piece), from, own);
        }
        if (tid < 64) copy_async(to + Stage::RATES + tid * 16, rates + slot * 64 + tid, true);
        copy_async_commit();
    };

    // The state: of tile n key dimensions 8·n …; (column, 2t), (column, 2t + 1), and of column + 8.
    float state[NS][4];
#pragma unroll
    for (int n = 0; n < NS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            state[n][i] = active ? boundary(start_parity)[(u64)(8 * n + 2 * t + (i & 1)) * width + column + 8 * (i >> 1)] : 0.0f;

    GroupTile tile = step.tiles[tile_index], next = tile;
    fetch(0, tile_index, tile);
    float scale = 1.0f / sqrtf((float)D);
    u32 stage = 0;
    for (u32 done = 0; done < span.rows;) {
        u32 group = (span.position + done) / 64, first = tile.first, last = first + tile.rows, parity = group & 1;
        done += tile.rows;
        if (done < span.rows) {
            next = step.tiles[tile_index + 1];
            fetch(stage ^ 1, tile_index + 1, next);
            copy_async_wait<1>();
        } else
            copy_async_wait<0>();
        __syncthreads();
        u32 at = base + stage * Stage::BYTES, squares = at + Stage::SQUARES;
        const float4 *rate = (const float4 *)(memory + stage * Stage::BYTES + Stage::RATES);
        if (active) {
            float u[8][4], o[8][4];
#pragma unroll
            for (int n = 0; n < 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) u[n][i] = o[n][i] = 0.0f;
            // S0ᵀk and S0ᵀq.
#pragma unroll
            for (int kk = 0; kk < D / 16; ++kk) {
                u32 high[4], low[4];
                split_operand(state[2 * kk], state[2 * kk + 1], high, low);
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    u32 b[4], c[4];
                    u32 from = at + piece_of<PIECES>(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * kk + ((lane >> 3) & 1));
                    load_matrices(b, from);
                    load_matrices(c, from + Stage::Q);
                    mma(u[2 * n], high, b[0], b[1]);
                    mma(u[2 * n + 1], high, b[2], b[3]);
                    mma(o[2 * n], high, c[0], c[1]);
                    mma(o[2 * n + 1], high, c[2], c[3]);
                    mma(u[2 * n], low, b[0], b[1]);
                    mma(u[2 * n + 1], low, b[2], b[3]);
                    mma(o[2 * n], low, c[0], c[1]);
                    mma(o[2 * n + 1], low, c[2], c[3]);
                }
            }
            // β(v − e^G·S0ᵀk); rows of the past keep their u.
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                u32 value[4];
                load_matrices_transposed(value, at + Stage::V + piece_of<8>((n + (lane >> 4)) * 8 + (lane & 7), warp * 2 + ((lane >> 3) & 1)));
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    float4 r0 = rate[8 * (n + m) + 2 * t], r1 = rate[8 * (n + m) + 2 * t + 1];
                    float (&x)[4] = u[n + m], (&y)[4] = o[n + m];
                    u32 low = value[2 * m], high = value[2 * m + 1];
                    x[0] = r0.x * __fmaf_rn(-r0.y, x[0], bf16_low(low));
                    x[1] = r1.x * __fmaf_rn(-r1.y, x[1], bf16_high(low));
                    x[2] = r0.x * __fmaf_rn(-r0.y, x[2], bf16_low(high));
                    x[3] = r1.x * __fmaf_rn(-r1.y, x[3], bf16_high(high));
                    float a = scale * r0.y, b = scale * r1.y;
                    y[0] *= a, y[1] *= b, y[2] *= a, y[3] *= b;
                }
            }
            if (first > 0) {
                const float *known = u_rows(parity);
#pragma unroll
                for (int n = 0; n < 8; ++n)
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        u32 row = 8 * n + 2 * t + (i & 1);
                        if (row < first) u[n][i] = known[(u64)row * width + column + 8 * (i >> 1)];
                    }
            }
            // u = T times that.
            {
                float x[8][4];
#pragma unroll
                for (int n = 0; n < 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) x[n][i] = u[n][i], u[n][i] = 0.0f;
#pragma unroll
                for (int kk = 0; kk < 4; ++kk) {
                    u32 high[4], low[4];
                    split_operand(x[2 * kk], x[2 * kk + 1], high, low);
#pragma unroll
                    for (int n = kk; n < 4; ++n) {
                        u32 b[4], c[4];
                        u32 from = squares + piece_of<8>(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * kk + ((lane >> 3) & 1));
                        load_matrices(b, from);
                        load_matrices(c, from + SQUARE);
                        mma(u[2 * n], high, b[0], b[1]);
                        mma(u[2 * n + 1], high, b[2], b[3]);
                        mma(u[2 * n], low, b[0], b[1]);
                        mma(u[2 * n + 1], low, b[2], b[3]);
                        mma(u[2 * n], high, c[0], c[1]);
                        mma(u[2 * n + 1], high, c[2], c[3]);
                    }
                }
            }
            if (group + 1 >= last_group) {
                float *to = u_rows(parity);
#pragma unroll
                for (int n = 0; n < 8; ++n)
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        u32 row = 8 * n + 2 * t + (i & 1);
                        if (row >= first && row < last) to[(u64)row * width + column + 8 * (i >> 1)] = u[n][i];
                    }
            }
            // The state's next value where the group ends; it needs u, not the output.
            if (last == 64) {
                float from_start = rate[63].y;
#pragma unroll
                for (int n = 0; n < NS; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) state[n][i] *= from_start;
#pragma unroll
                for (int kk = 0; kk < 4; ++kk) {
                    float x[2][4];
#pragma unroll
                    for (int m = 0; m < 2; ++m) {
                        u32 row = 16 * kk + 8 * m + 2 * t;
                        float a = rate[row].z, b = rate[row + 1].z;
                        x[m][0] = u[2 * kk + m][0] * a, x[m][1] = u[2 * kk + m][1] * b;
                        x[m][2] = u[2 * kk + m][2] * a, x[m][3] = u[2 * kk + m][3] * b;
                    }
                    u32 high[4], low[4];
                    split_operand(x[0], x[1], high, low);
#pragma unroll
                    for (int n = 0; n < NS; n += 2) {
                        u32 b[4];
                        load_matrices_transposed(b, at + piece_of<PIECES>(kk * 16 + (lane & 15), n + (lane >> 4)));
                        mma(state[n], high, b[0], b[1]);
                        mma(state[n + 1], high, b[2], b[3]);
                        mma(state[n], low, b[0], b[1]);
                        mma(state[n + 1], low, b[2], b[3]);
                    }
                }
                if (group + 2 >= open_group) {
                    float *to = boundary(parity ^ 1);
#pragma unroll
                    for (int n = 0; n < NS; ++n)
#pragma unroll
                        for (int i = 0; i < 4; ++i) to[(u64)(8 * n + 2 * t + (i & 1)) * width + column + 8 * (i >> 1)] = state[n][i];
                }
            }
            // o += P·u.
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                u32 high[4], low[4];
                split_operand(u[2 * kk], u[2 * kk + 1], high, low);
#pragma unroll
                for (int n = kk; n < 4; ++n) {
                    u32 b[4], c[4];
                    u32 from = squares + 2 * SQUARE + piece_of<8>(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * kk + ((lane >> 3) & 1));
                    load_matrices(b, from);
                    load_matrices(c, from + SQUARE);
                    mma(o[2 * n], high, b[0], b[1]);
                    mma(o[2 * n + 1], high, b[2], b[3]);
                    mma(o[2 * n], low, b[0], b[1]);
                    mma(o[2 * n + 1], low, b[2], b[3]);
                    mma(o[2 * n], high, c[0], c[1]);
                    mma(o[2 * n + 1], high, c[2], c[3]);
                }
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                u32 low = transpose_matrix(f32x2_to_bf16x2(o[n][0], o[n][1]));
                u32 high = transpose_matrix(f32x2_to_bf16x2(o[n][2], o[n][3]));
                u32 i = 8 * n + g;
                if (i >= first && i < last) {
                    u16 *to = out + (u64)(tile.row + i - first) * ldo + head * width + c0 + warp * 16 + 2 * t;
                    *(u32 *)to = low;
                    *(u32 *)(to + 8) = high;
                }
            }
        }
        __syncthreads();
        tile = next;
        ++tile_index;
        stage ^= 1;
    }
}

#define GDN_CHUNK_PREPARE(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) gdn_chunk_prepare_fast_d##D(                            \
        Step step, const u16 *q, const u16 *k, const float *log_decay, const float *beta, u8 *chunks, float4 *rates, \
        double *running, GdnSlot s) {                                                                         \
        gdn_chunk_prepare<D>(step, q, k, log_decay, beta, chunks, rates, running, s);                         \
    }
GDN_CHUNK_PREPARE(16)
GDN_CHUNK_PREPARE(32)
GDN_CHUNK_PREPARE(128)

#define GDN_CHUNK_CORE(D)                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, 1) gdn_chunk_core_fast_d##D(                            \
        Step step, const u16 *q, const u16 *k, const u16 *v, const u8 *chunks, const float4 *rates, u16 *out, u32 ldo, \
        GdnSlot s) {                                                                                          \
        gdn_chunk_core<D>(step, q, k, v, chunks, rates, out, ldo, s);                                         \
    }
GDN_CHUNK_CORE(16)
GDN_CHUNK_CORE(32)
GDN_CHUNK_CORE(128)
