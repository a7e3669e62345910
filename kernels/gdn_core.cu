// gdn_core.cu: the gated delta rule by groups of 64 tokens, aligned to absolute positions.
//
// Purpose:    regions `gdn_core` and `gdn_commit`: `gdn_dots` makes the products of key and query rows of a
//             group and the running decays, `gdn_core_rows` does several rows of a sequence, `gdn_core_row` one
//             row a sequence.
// Grid:       gdn_dots: x = tiles (rows of one group in a span), y = key heads; gdn_core_rows: x = pieces of 32
//             value columns, y = value heads, z = spans, which a block walks tile by tile; gdn_core_row: the same
//             grid. 256 threads a block.
// Shapes:     q, k [rows][key_heads·key_dim], v, out [rows][value_heads·value_dim], decay, beta [rows][value_heads].
// Accumulator: FP32 by fused multiply-add; G (running log decay) in FP64.
// Order:      over key_dim: four equal parts, each one ascending chain, (0 + 1) + (2 + 3); over rows l of the
//             group: one ascending chain. u_i = β((v − e^{G_i}·S0ᵀk_i) − Σ_{l<i} w_il·u_l),
//             o_i = e^{G_i}·S0ᵀq_i + Σ_{l≤i} w'_il·u_l, w_il = e^{G_i−G_l}·(k_i·k_l). With row 63 the boundary
//             becomes e^{G_63}·S0 + Σ_l (e^{G_63−G_l}·k_l) u_lᵀ, l ascending.
// Invariance: would break if the two core kernels summed in different orders, or if a row's sums depended on
//             how many rows of its group a step brings. Value columns never meet.
// Reference:  backend/cpu/gdn_core.rs (the same form, other orders), the recurrence in FP64.
// Gate:       gdn-core-invariance, gdn-commit-invariance, core-reference-gdn

// Offsets in bytes into a sequence's memory, and the layer's sizes (as in gdn_inputs.cu).
struct GdnSlot {
    u64 boundary, u, decay, k, conv;
    u32 key_heads, value_heads, key_dim, value_dim, ring, taps;
};

DEVICE float four(float a, float b, float c, float d) { return __fadd_rn(__fadd_rn(a, b), __fadd_rn(c, d)); }
DEVICE float since(double later, double earlier) { return exp_fixed((float)(later - earlier)); }
DEVICE float query_scale(u32 key_dim) { return 1.0f / sqrtf((float)key_dim); }

// Row and column of entry `index` of a lower triangle, by rows.
DEVICE void triangle(u32 index, u32 &row, u32 &column) {
    row = (u32)((sqrtf(8.0f * (float)index + 1.0f) - 1.0f) * 0.5f);
    while ((row + 1) * (row + 2) / 2 <= index) ++row;
    while (row * (row + 1) / 2 > index) --row;
    column = index - row * (row + 1) / 2;
}

// ---- several rows ---------------------------------------------------------------------------------

// dots [tile][key_head][2][64][64]: k_i·k_l and (scaled q_i)·k_l of a tile's rows i against every row
// l ≤ i of the group; older rows come from the sequence. running [row][value_head]: Σ of log decays
// since the group's start, serial in FP64.
template <typename T>
DEVICE void gdn_dots(const Step &step, const T *q, const T *k, const float *log_decay, float *dots, double *running,
                     const GdnSlot &s) {
    extern __shared__ __align__(16) float tile_memory[];
    begin_kernel();
    GroupTile tile = step.tiles[blockIdx.x];
    SpanInfo span = step.spans[tile.span];
    u32 head = blockIdx.y, dim = s.key_dim, keys = s.key_heads * dim, pitch = 68, tid = threadIdx.x;
    u32 first = tile.first, last = first + tile.rows, ratio = s.value_heads / s.key_heads;
    u32 parity = (span.position + tile.row - span.first_row) / 64 & 1;
    float *kt = tile_memory, *qt = kt + dim * pitch, *decays = qt + dim * pitch, scale = query_scale(dim);
    const T *old = (const T *)(span.gdn + s.k) + (u64)(parity * s.key_heads + head) * 64 * dim;
    for (u32 e = tid; e < 64 * ratio; e += 256) {
        u32 i = e / ratio, h = head * ratio + e % ratio;
        decays[e] = i >= first && i < last ? log_decay[(u64)(tile.row + i - first) * s.value_heads + h] : 0.0f;
    }
    if (dim % 8 == 0) {
        u32 pieces = dim / 8;
#pragma unroll 4
        for (u32 e = tid; e < 64 * pieces; e += 256) {
            u32 i = e & 63, piece = e >> 6;
            Eight key = {}, query = {};
            if (i < last) {
                u64 at = i < first ? 0 : (u64)(tile.row + i - first) * keys + head * dim;
                key = load8((i < first ? old + i * dim : k + at) + piece * 8);
                if (i >= first) query = load8(q + at + piece * 8);
            }
#pragma unroll
            for (u32 x = 0; x < 8; ++x) {
                kt[(piece * 8 + x) * pitch + i] = key.v[x];
                qt[(piece * 8 + x) * pitch + i] = query.v[x] * scale;
            }
        }
    } else {
        for (u32 e = tid; e < 64 * dim; e += 256) {
            u32 i = e / dim, d = e % dim;
            float key = 0.0f, query = 0.0f;
            if (i < first)
                key = widen(old[e]);
            else if (i < last) {
                u64 at = (u64)(tile.row + i - first) * keys + head * dim + d;
                key = widen(k[at]), query = widen(q[at]) * scale;
            }
            kt[d * pitch + i] = key;
            qt[d * pitch + i] = query;
        }
    }
    __syncthreads();
    // The last warps have fewer products to make below.
    for (u32 h = 255 - tid; h < ratio; h += 256) {
        u32 value_head = head * ratio + h;
        const double *kept = (const double *)(span.gdn + s.decay) + (parity * s.value_heads + value_head) * 64;
        double g = first ? kept[first - 1] : 0.0;
#pragma unroll 8
        for (u32 i = first; i < last; ++i) {
            g = g + (double)decays[i * ratio + h];
            running[(u64)(tile.row + i - first) * s.value_heads + value_head] = g;
        }
    }
    // Blocks of 4 × 4 products in and below the diagonal, keys first.
    u32 seg = (dim + 3) / 4;
    float *out = dots + ((u64)blockIdx.x * s.key_heads + head) * 2 * 64 * 64;
    for (u32 item = tid; item < 2 * 136; item += 256) {
        u32 which = item >= 136, ti, tl;
        triangle(item - 136 * which, ti, tl);
        if (ti * 4 + 3 < first || ti * 4 >= last) continue;
        const float *rows = which ? qt : kt;
        float part[4][16];
#pragma unroll
        for (u32 p = 0; p < 4; ++p) {
#pragma unroll
            for (int j = 0; j < 16; ++j) part[p][j] = 0.0f;
#pragma unroll 4
            for (u32 d = p * seg; d < min((p + 1) * seg, dim); ++d) {
                float4 a = *(const float4 *)(rows + d * pitch + ti * 4), b = *(const float4 *)(kt + d * pitch + tl * 4);
                float x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
                for (int j = 0; j < 16; ++j) part[p][j] = __fmaf_rn(x[j >> 2], y[j & 3], part[p][j]);
            }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            float sum[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                int j = 4 * r + c;
                sum[c] = four(part[0][j], part[1][j], part[2][j], part[3][j]);
            }
            *(float4 *)(out + (which * 64 + ti * 4 + r) * 64 + tl * 4) = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
    }
}

#define GDN_DOTS(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) gdn_dots_##NAME(                                        \
        Step step, const T *q, const T *k, const float *log_decay, float *dots, double *running, GdnSlot s) { \
        gdn_dots<T>(step, q, k, log_decay, dots, running, s);                                                 \
    }
GDN_DOTS(bf16, u16)
GDN_DOTS(f32, float)

// Elements between rows of transposed keys and queries, and floats between rows of weights, in shared
// memory.
constexpr u32 TILE_PITCH = 72, WEIGHT_PITCH = 68;
DEVICE u32 key_pitch(u32 dim) { return (dim + 7) & ~3u; }

// Shared memory of a block. `w` and `w2` are one place for three uses that follow each other in a tile:
// partial sums [4][64][32], weights of keys and of queries [64][68] each, weighted keys
// [64][key_pitch].
template <typename T> struct CoreMemory {
    double *decay;                              // G [64]
    float *s0, *w, *w2, *u, *sum;               // S0 [key_dim][32], u [64][32], sums [16][32]
    float *beta, *start, *tail;                 // [64]: β, e^G, e^{G_63 − G}
    T *kt, *qt;                                 // [key_dim][72]
    DEVICE CoreMemory(u8 *memory, u32 dim) {
        decay = (double *)memory;
        s0 = (float *)(decay + 64);
        w = s0 + dim * 32;
        w2 = w + 64 * WEIGHT_PITCH;
        u = w + max(2 * 64 * WEIGHT_PITCH, 64 * key_pitch(dim));
        sum = u + 64 * 32;
        beta = sum + 16 * 32;
        start = beta + 64;
        tail = start + 64;
        kt = (T *)(tail + 64);
        qt = kt + dim * TILE_PITCH;
    }
};

// The rows of a tile: where they come from.
template <typename T> struct TileRows {
    const T *q, *k, *old_k;  // of the head; old_k of the open group
    const float *beta;       // of the head
    const double *running, *old_decay;
    u32 keys, heads, dim;
};

// Keys, queries, rates and decays of the next tile on their way while this one is finished. FP32 rows,
// and heads of another size than 128, are not fetched ahead.
template <typename T> struct Ahead {
    DEVICE bool can(u32) const { return false; }
    DEVICE void fetch(const TileRows<T> &, const GroupTile &) {}
    DEVICE void place(T *, T *) const {}
};
template <> struct Ahead<u16> {
    uint4 k[2][2], q[2][2];  // [piece of 8 dimensions][row of a pair]
    DEVICE bool can(u32 dim) const { return dim == 128; }
    DEVICE void fetch(const TileRows<u16> &rows, const GroupTile &tile) {
        u32 pair = threadIdx.x & 31, last = tile.first + tile.rows;
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
#pragma unroll
            for (u32 r = 0; r < 2; ++r) {
                u32 i = 2 * pair + r, piece = (threadIdx.x >> 5) + 8 * j;
                k[j][r] = q[j][r] = make_uint4(0, 0, 0, 0);
                if (i < tile.first)
                    k[j][r] = *(const uint4 *)(rows.old_k + i * 128 + piece * 8);
                else if (i < last) {
                    u64 at = (u64)(tile.row + i - tile.first) * rows.keys + piece * 8;
                    k[j][r] = *(const uint4 *)(rows.k + at), q[j][r] = *(const uint4 *)(rows.q + at);
                }
            }
    }
    static DEVICE void transpose(u16 *to, const uint4 &even, const uint4 &odd) {
        u32 a[4] = {even.x, even.y, even.z, even.w}, b[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
        for (u32 x = 0; x < 4; ++x) {
            *(u32 *)(to + 2 * x * TILE_PITCH) = __byte_perm(a[x], b[x], 0x5410);
            *(u32 *)(to + (2 * x + 1) * TILE_PITCH) = __byte_perm(a[x], b[x], 0x7632);
        }
    }
    DEVICE void place(u16 *kt, u16 *qt) const {
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            u32 at = ((threadIdx.x >> 5) + 8 * j) * 8 * TILE_PITCH + 2 * (threadIdx.x & 31);
            transpose(kt + at, k[j][0], k[j][1]);
            transpose(qt + at, q[j][0], q[j][1]);
        }
    }
};

template <typename T>
DEVICE void gdn_core_rows(const Step &step, const T *q, const T *k, const T *v, const float *beta, const float *dots,
                          const double *running, T *out, u32 ldo, const GdnSlot &s) {
    extern __shared__ __align__(16) u8 memory[];
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    if (span.rows < 2) return;
    u32 dim = s.key_dim, width = s.value_dim, head = blockIdx.y, c0 = blockIdx.x * 32, tid = threadIdx.x;
    u32 key_head = head / (s.value_heads / s.key_heads), keys = s.key_heads * dim, heads = s.value_heads;
    u32 columns = min(32u, width - c0), seg = (dim + 3) / 4, lane = tid & 31, warp = tid >> 5;
    CoreMemory<T> mem(memory, dim);
    float scale = query_scale(dim);
    // Tiles of a span are consecutive; find the first.
    u32 tile_index = 0;
    while (step.tiles[tile_index].span != blockIdx.z) ++tile_index;
    auto boundary = [&](u32 p) { return (float *)(span.gdn + s.boundary) + (u64)(p * heads + head) * dim * width + c0; };
    auto u_rows = [&](u32 p) { return (float *)(span.gdn + s.u) + (u64)(p * heads + head) * 64 * width + c0; };
    // What the sequence keeps: rows of the last two groups, the last two boundaries.
    u32 end = span.position + span.rows, last_group = (end - 1) / 64, open_group = end / 64;
    u32 start_parity = span.position / 64 & 1;
    TileRows<T> rows = {q + key_head * dim,
                        k + key_head * dim,
                        (const T *)(span.gdn + s.k) + (u64)(start_parity * s.key_heads + key_head) * 64 * dim,
                        beta + head,
                        running + head,
                        (const double *)(span.gdn + s.decay) + (start_parity * heads + head) * 64,
                        keys,
                        heads,
                        dim};
    for (u32 e = tid; e < dim * 32; e += 256) {
        u32 d = e >> 5, c = e & 31;
        mem.s0[e] = c < columns ? boundary(start_parity)[(u64)d * width + c] : 0.0f;
    }
    GroupTile tile = step.tiles[tile_index];
    Ahead<T> ahead;
    bool fetches = ahead.can(dim);
    if (fetches) {
        ahead.fetch(rows, tile);
        ahead.place(mem.kt, mem.qt);
    }
    float next_beta = 0.0f;
    double next_decay = 0.0;
    auto fetch_scalars = [&]() {
        next_beta = 0.0f, next_decay = 0.0;
        if (tid < tile.first)
            next_decay = rows.old_decay[tid];
        else if (tid < tile.first + tile.rows && tid < 64) {
            u64 at = (u64)(tile.row + tid - tile.first) * heads;
            next_decay = rows.running[at], next_beta = rows.beta[at];
        }
    };
    fetch_scalars();
    // Sums over key_dim: a part for each 64 threads, 8 rows × 4 columns each.
    u32 part = tid >> 6, r8 = (tid >> 3 & 7) * 8, c4 = (tid & 7) * 4;
    // Everything else by rows: two of them, balanced over the triangle.
    u32 row_of[2] = {tid >> 3, 63 - (tid >> 3)};
    for (u32 done = 0; done < span.rows;) {
        u32 group = (span.position + done) / 64, first = tile.first, last = first + tile.rows, parity = group & 1;
        u32 tile_row = tile.row;
        if (tid < 64) {
            mem.decay[tid] = next_decay;
            mem.beta[tid] = next_beta;
            mem.start[tid] = tid < last ? exp_fixed((float)next_decay) : 0.0f;
        }
        if (!fetches) {
            for (u32 e = tid; e < 64 * dim; e += 256) {
                u32 i = e / dim, d = e % dim;
                T key = narrow<T>(0.0f), query = key;
                if (i < first)
                    key = rows.old_k[e];
                else if (i < last) {
                    u64 at = (u64)(tile_row + i - first) * keys + d;
                    key = rows.k[at], query = rows.q[at];
                }
                mem.kt[d * TILE_PITCH + i] = key;
                mem.qt[d * TILE_PITCH + i] = query;
            }
        }
        // Rows before the tile's are known; later ones are zero until they come.
        if (first > 0 || last < 64)
            for (u32 e = tid; e < 64 * 32; e += 256) {
                u32 i = e >> 5, c = e & 31;
                mem.u[e] = i < first && c < columns ? u_rows(parity)[(u64)i * width + c] : 0.0f;
            }
        __syncthreads();
        if (tid < 64) mem.tail[tid] = tid < last ? since(mem.decay[last - 1], mem.decay[tid]) : 0.0f;

        // S0ᵀk and S0ᵀq.
        float from_q[2][4];
        {
            float sum_k[32], sum_q[32];
#pragma unroll
            for (int j = 0; j < 32; ++j) sum_k[j] = sum_q[j] = 0.0f;
            if (r8 + 7 >= first && r8 < last) {
                u32 stop = min((part + 1) * seg, dim);
#pragma unroll 2
                for (u32 d = part * seg; d < stop; ++d) {
                    float4 s4 = *(const float4 *)(mem.s0 + d * 32 + c4);
                    float column[4] = {s4.x, s4.y, s4.z, s4.w};
                    Eight key = load8(mem.kt + d * TILE_PITCH + r8), query = load8(mem.qt + d * TILE_PITCH + r8);
#pragma unroll
                    for (int r = 0; r < 8; ++r) {
                        float x = query.v[r] * scale;
#pragma unroll
                        for (int c = 0; c < 4; ++c) {
                            sum_k[4 * r + c] = __fmaf_rn(key.v[r], column[c], sum_k[4 * r + c]);
                            sum_q[4 * r + c] = __fmaf_rn(x, column[c], sum_q[4 * r + c]);
                        }
                    }
                }
            }
            float *parts = mem.w;
            auto give = [&](const float (&sum)[32]) {
#pragma unroll
                for (int r = 0; r < 8; ++r)
                    *(float4 *)(parts + (part * 64 + r8 + r) * 32 + c4) =
                        make_float4(sum[4 * r], sum[4 * r + 1], sum[4 * r + 2], sum[4 * r + 3]);
            };
            auto take = [&](u32 row, float (&whole)[4]) {
                float4 p[4];
#pragma unroll
                for (u32 n = 0; n < 4; ++n) p[n] = *(const float4 *)(parts + (n * 64 + row) * 32 + c4);
                whole[0] = four(p[0].x, p[1].x, p[2].x, p[3].x), whole[1] = four(p[0].y, p[1].y, p[2].y, p[3].y);
                whole[2] = four(p[0].z, p[1].z, p[2].z, p[3].z), whole[3] = four(p[0].w, p[1].w, p[2].w, p[3].w);
            };
            give(sum_k);
            float value[2][4];
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    u32 i = row_of[r];
                    value[r][c] = i >= first && i < last && c4 + c < columns
                                      ? widen(v[(u64)(tile_row + i - first) * heads * width + head * width + c0 + c4 + c])
                                      : 0.0f;
                }
            __syncthreads();
            // v − e^{G}·S0ᵀk where u will stand.
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                u32 i = row_of[r];
                float from_k[4];
                take(i, from_k);
                if (i >= first && i < last)
                    *(float4 *)(mem.u + i * 32 + c4) =
                        make_float4(value[r][0] - mem.start[i] * from_k[0], value[r][1] - mem.start[i] * from_k[1],
                                    value[r][2] - mem.start[i] * from_k[2], value[r][3] - mem.start[i] * from_k[3]);
            }
            __syncthreads();
            give(sum_q);
        }
        // Weights of the rows: products from memory, decays from here.
        const float *dot = dots + ((u64)tile_index * s.key_heads + key_head) * 2 * 64 * 64;
        float4 dot_k[4], dot_q[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            u32 e = tid + 256 * j, i = e >> 4, l = (e & 15) * 4;
            dot_k[j] = dot_q[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i >= first && i < last && l <= i) {
                dot_k[j] = *(const float4 *)(dot + i * 64 + l);
                dot_q[j] = *(const float4 *)(dot + (64 + i) * 64 + l);
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float4 p[4];
#pragma unroll
            for (u32 n = 0; n < 4; ++n) p[n] = *(const float4 *)(mem.w + (n * 64 + row_of[r]) * 32 + c4);
            from_q[r][0] = four(p[0].x, p[1].x, p[2].x, p[3].x), from_q[r][1] = four(p[0].y, p[1].y, p[2].y, p[3].y);
            from_q[r][2] = four(p[0].z, p[1].z, p[2].z, p[3].z), from_q[r][3] = four(p[0].w, p[1].w, p[2].w, p[3].w);
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            u32 e = tid + 256 * j, i = e >> 4, l = (e & 15) * 4;
            float x[4] = {dot_k[j].x, dot_k[j].y, dot_k[j].z, dot_k[j].w};
            float y[4] = {dot_q[j].x, dot_q[j].y, dot_q[j].z, dot_q[j].w};
#pragma unroll
            for (u32 n = 0; n < 4; ++n) {
                bool used = i >= first && i < last && l + n <= i;
                float decayed = used ? since(mem.decay[i], mem.decay[l + n]) : 0.0f;
                x[n] = used && l + n < i ? decayed * x[n] : 0.0f;
                y[n] = used ? decayed * y[n] : 0.0f;
            }
            *(float4 *)(mem.w + i * WEIGHT_PITCH + l) = make_float4(x[0], x[1], x[2], x[3]);
            *(float4 *)(mem.w2 + i * WEIGHT_PITCH + l) = make_float4(y[0], y[1], y[2], y[3]);
        }
        __syncthreads();

        // Forward substitution in blocks of 16 rows, a column a lane.
        for (u32 b = first / 16 * 16; b < last; b += 16) {
            float early[2] = {0.0f, 0.0f};
            const float *weights = mem.w + (b + 2 * warp) * WEIGHT_PITCH;
#pragma unroll 2
            for (u32 l = 0; l < b; l += 4) {
                float4 a = *(const float4 *)(weights + l), c = *(const float4 *)(weights + WEIGHT_PITCH + l);
                float x[4] = {a.x, a.y, a.z, a.w}, y[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
                for (u32 n = 0; n < 4; ++n) {
                    float known = mem.u[(l + n) * 32 + lane];
                    early[0] = __fmaf_rn(x[n], known, early[0]);
                    early[1] = __fmaf_rn(y[n], known, early[1]);
                }
            }
            mem.sum[2 * warp * 32 + lane] = early[0];
            mem.sum[(2 * warp + 1) * 32 + lane] = early[1];
            __syncthreads();
            if (warp == 0) {
                float sum[16];
#pragma unroll
                for (int r = 0; r < 16; ++r) sum[r] = mem.sum[r * 32 + lane];
#pragma unroll
                for (int i0 = 0; i0 < 16; i0 += 4) {
                    float4 w4[16];
#pragma unroll
                    for (int r = i0 + 1; r < 16; ++r) w4[r] = *(const float4 *)(mem.w + (b + r) * WEIGHT_PITCH + b + i0);
#pragma unroll
                    for (int n = 0; n < 4; ++n) {
                        u32 row = b + i0 + n;
                        float known = mem.u[row * 32 + lane];
                        if (row >= first && row < last) known = mem.beta[row] * (known - sum[i0 + n]);
                        mem.u[row * 32 + lane] = known;
                        // Of every later row the next term of its chain.
#pragma unroll
                        for (int r = i0 + n + 1; r < 16; ++r) {
                            float weight = n == 0 ? w4[r].x : n == 1 ? w4[r].y : n == 2 ? w4[r].z : w4[r].w;
                            sum[r] = __fmaf_rn(weight, known, sum[r]);
                        }
                    }
                }
            }
            __syncthreads();
        }
        if (group + 1 >= last_group)
            for (u32 e = first * 32 + tid; e < last * 32; e += 256) {
                u32 i = e >> 5, c = e & 31;
                if (c < columns) u_rows(parity)[(u64)i * width + c] = mem.u[e];
            }
        // The next tile sets out.
        done += tile.rows;
        ++tile_index;
        bool more = done < span.rows;
        if (more) {
            tile = step.tiles[tile_index];
            if (fetches) ahead.fetch(rows, tile);
            fetch_scalars();
        }

        // Output rows.
        {
            float inner[2][4];
#pragma unroll
            for (int j = 0; j < 8; ++j) inner[j >> 2][j & 3] = 0.0f;
            u32 low = row_of[0], high = row_of[1], l = 0;
            auto add = [&](float (&sum)[4], u32 row) {
                float4 w4 = *(const float4 *)(mem.w2 + row * WEIGHT_PITCH + l);
                float weight[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
                for (u32 n = 0; n < 4; ++n) {
                    float4 u4 = *(const float4 *)(mem.u + (l + n) * 32 + c4);
                    float column[4] = {u4.x, u4.y, u4.z, u4.w};
#pragma unroll
                    for (int c = 0; c < 4; ++c) sum[c] = __fmaf_rn(weight[n], column[c], sum[c]);
                }
            };
            // Weights past a row's own are zero.
            for (; l <= low; l += 4) {
                add(inner[0], low);
                add(inner[1], high);
            }
#pragma unroll 2
            for (; l <= high; l += 4) add(inner[1], high);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                u32 i = row_of[r];
                if (i < first || i >= last) continue;
                T *to = out + (u64)(tile_row + i - first) * ldo + head * width + c0 + c4;
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    if (c4 + c < columns) to[c] = narrow<T>(mem.start[i] * from_q[r][c] + inner[r][c]);
            }
        }
        if (last < 64) break;

        // Region gdn_commit: weighted keys by rows first.
        __syncthreads();
        u32 pitch = key_pitch(dim);
        for (u32 e = tid; e < 8 * dim; e += 256) {
            u32 d = e % dim, l = e / dim * 8;
            Eight key = load8(mem.kt + d * TILE_PITCH + l);
#pragma unroll
            for (u32 n = 0; n < 8; ++n) mem.w[(l + n) * pitch + d] = mem.tail[l + n] * key.v[n];
        }
        __syncthreads();
        if (more && fetches) ahead.place(mem.kt, mem.qt);
        float from_start = mem.start[63];
        for (u32 d0 = (tid >> 3) * 4; d0 < dim; d0 += 128) {
            float next[16];
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                u32 d = min(d0 + (j >> 2), dim - 1);
                next[j] = from_start * mem.s0[d * 32 + c4 + (j & 3)];
            }
#pragma unroll 8
            for (u32 l = 0; l < 64; ++l) {
                float4 u4 = *(const float4 *)(mem.u + l * 32 + c4), k4 = *(const float4 *)(mem.w + l * pitch + d0);
                float column[4] = {u4.x, u4.y, u4.z, u4.w}, key[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
                for (int j = 0; j < 16; ++j) next[j] = __fmaf_rn(key[j >> 2], column[j & 3], next[j]);
            }
            bool kept = group + 2 >= open_group;
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                u32 d = d0 + (j >> 2), c = c4 + (j & 3);
                if (d >= dim) continue;
                mem.s0[d * 32 + c] = next[j];
                if (kept && c < columns) boundary(parity ^ 1)[(u64)d * width + c] = next[j];
            }
        }
        __syncthreads();
    }
}

#define GDN_CORE_ROWS(NAME, T)                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 2) gdn_core_rows_##NAME(                                \
        Step step, const T *q, const T *k, const T *v, const float *beta, const float *dots, const double *running, \
        T *out, u32 ldo, GdnSlot s) {                                                                         \
        gdn_core_rows<T>(step, q, k, v, beta, dots, running, out, ldo, s);                                    \
    }
GDN_CORE_ROWS(bf16, u16)
GDN_CORE_ROWS(f32, float)

// ---- one row --------------------------------------------------------------------------------------

// What the sequence keeps was written before the step and is fetched before the wait for the previous
// kernel; only the row's own inputs come after it. Shared memory: S0 [key_dim][32], u [64][32], key rows
// [64][key_dim·size + 16 bytes].
template <typename T>
DEVICE void gdn_core_row(const Step &step, const T *q, const T *k, const T *v, const float *log_decay, const float *beta,
                         T *out, u32 ldo, const GdnSlot &s) {
    extern __shared__ __align__(16) u8 memory[];
    __shared__ float key[512], query[512], w[2][64], part[2][4][32], row_since[64];
    allow_next_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    if (span.rows != 1) {
        wait_for_previous_kernel();
        return;
    }
    u32 row = span.first_row, dim = s.key_dim, width = s.value_dim, head = blockIdx.y, c0 = blockIdx.x * 32;
    u32 ratio = s.value_heads / s.key_heads, key_head = head / ratio, keys = s.key_heads * dim, heads = s.value_heads;
    u32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, seg = (dim + 3) / 4, column = c0 + lane;
    u32 i = span.position & 63, parity = span.position / 64 & 1, columns = min(32u, width - c0);
    const float *s0 = (const float *)(span.gdn + s.boundary) + (u64)(parity * heads + head) * dim * width;
    float *next = (float *)(span.gdn + s.boundary) + (u64)((parity ^ 1) * heads + head) * dim * width;
    float *u = (float *)(span.gdn + s.u) + (u64)(parity * heads + head) * 64 * width;
    double *kept = (double *)(span.gdn + s.decay) + (parity * heads + head) * 64;
    T *rows = (T *)(span.gdn + s.k) + (u64)(parity * s.key_heads + key_head) * 64 * dim;

    u32 row_bytes = dim * sizeof(T), pitch = row_bytes + 16;
    float *s_tile = (float *)memory, *u_tile = s_tile + dim * 32;
    u8 *k_tile = (u8 *)(u_tile + 64 * 32);
    if (width % 4 == 0) {
        for (u32 e = tid; e < (dim + i) * 8; e += 256) {
            u32 r = e >> 3, c = (e & 7) * 4;
            const float *from = r < dim ? s0 + (u64)r * width : u + (u64)(r - dim) * width;
            copy_async(shared_address(s_tile + r * 32 + c), from + c0 + (c < columns ? c : 0), c < columns);
        }
    } else {
        for (u32 e = tid; e < (dim + i) * 32; e += 256) {
            u32 r = e >> 5, c = e & 31;
            const float *from = r < dim ? s0 + (u64)r * width : u + (u64)(r - dim) * width;
            s_tile[e] = c < columns ? from[c0 + c] : 0.0f;
        }
    }
    if (row_bytes % 16 == 0) {
        u32 pieces = row_bytes / 16;
        for (u32 e = tid; e < i * pieces; e += 256) {
            u32 l = e / pieces, piece = e % pieces;
            copy_async(shared_address(k_tile + l * pitch + piece * 16), (const u8 *)rows + (u64)e * 16, true);
        }
    } else {
        for (u32 e = tid; e < i * dim; e += 256) ((T *)(k_tile + e / dim * pitch))[e % dim] = rows[e];
    }
    copy_async_commit();
    double earlier = tid < i ? kept[tid] : 0.0, before = i ? kept[i - 1] : 0.0;

    wait_for_previous_kernel();
    for (u32 d = tid; d < dim; d += 256) {
        T value = k[(u64)row * keys + key_head * dim + d];
        key[d] = widen(value);
        query[d] = widen(q[(u64)row * keys + key_head * dim + d]) * query_scale(dim);
        if (c0 == 0 && head % ratio == 0) rows[(u64)i * dim + d] = value;
        ((T *)(k_tile + i * pitch))[d] = value;
    }
    float own = warp == 0 && lane < columns ? widen(v[(u64)row * heads * width + head * width + column]) : 0.0f;
    float rate = beta[(u64)row * heads + head];
    double g = before + (double)log_decay[(u64)row * heads + head];
    float from_start = exp_fixed((float)g);
    if (c0 == 0 && tid == 0) kept[i] = g;
    if (tid <= i) row_since[tid] = since(g, tid < i ? earlier : g);
    copy_async_wait<0>();
    __syncthreads();
    if (warp < 4) {
        // The boundary state's share: a part of key_dim a warp.
        float sum_k = 0.0f, sum_q = 0.0f;
        u32 stop = min((warp + 1) * seg, dim);
#pragma unroll 8
        for (u32 d = warp * seg; d < stop; ++d) {
            float x = s_tile[d * 32 + lane];
            sum_k = __fmaf_rn(key[d], x, sum_k);
            sum_q = __fmaf_rn(query[d], x, sum_q);
        }
        part[0][warp][lane] = sum_k;
        part[1][warp][lane] = sum_q;
    } else {
        // Four lanes a pair of rows, each one part of key_dim.
        u32 p = tid & 3;
        for (u32 l = (tid - 128) >> 2; l < 64; l += 32) {
            float a = 0.0f, b = 0.0f;
            if (l <= i) {
                const T *other = (const T *)(k_tile + l * pitch);
                u32 stop = min((p + 1) * seg, dim);
#pragma unroll 8
                for (u32 d = p * seg; d < stop; ++d) {
                    float x = widen(other[d]);
                    a = __fmaf_rn(key[d], x, a);
                    b = __fmaf_rn(query[d], x, b);
                }
            }
#pragma unroll
            for (int offset = 1; offset < 4; offset <<= 1) {
                a = __fadd_rn(a, __shfl_xor_sync(~0u, a, offset));
                b = __fadd_rn(b, __shfl_xor_sync(~0u, b, offset));
            }
            if (l <= i && p == 0) w[0][l] = row_since[l] * a, w[1][l] = row_since[l] * b;
        }
    }
    __syncthreads();
    if (warp == 0) {
        float sum = 0.0f, inner = 0.0f;
#pragma unroll 8
        for (u32 l = 0; l < i; ++l) {
            float known = u_tile[l * 32 + lane];
            sum = __fmaf_rn(w[0][l], known, sum);
            inner = __fmaf_rn(w[1][l], known, inner);
        }
        float from_k = four(part[0][0][lane], part[0][1][lane], part[0][2][lane], part[0][3][lane]);
        float from_q = four(part[1][0][lane], part[1][1][lane], part[1][2][lane], part[1][3][lane]);
        float value = rate * ((own - from_start * from_k) - sum);
        u_tile[i * 32 + lane] = value;
        if (lane < columns) {
            u[(u64)i * width + column] = value;
            out[(u64)row * ldo + head * width + column] = narrow<T>(from_start * from_q + __fmaf_rn(w[1][i], value, inner));
        }
    }
    // Region gdn_commit.
    if (i == 63) {
        __syncthreads();
        for (u32 d = warp; d < dim; d += 8) {
            float value = from_start * s_tile[d * 32 + lane];
#pragma unroll 8
            for (u32 l = 0; l < 64; ++l) {
                float other = widen(((const T *)(k_tile + l * pitch))[d]);
                value = __fmaf_rn(row_since[l] * other, u_tile[l * 32 + lane], value);
            }
            if (lane < columns) next[(u64)d * width + column] = value;
        }
    }
}

#define GDN_CORE_ROW(NAME, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) gdn_core_row_##NAME(                                    \
        Step step, const T *q, const T *k, const T *v, const float *decay, const float *beta, T *out, u32 ldo, GdnSlot s) { \
        gdn_core_row<T>(step, q, k, v, decay, beta, out, ldo, s);                                             \
    }
GDN_CORE_ROW(bf16, u16)
GDN_CORE_ROW(f32, float)
