// gdn_core.cu: the gated delta rule by groups of 64 tokens, aligned to absolute positions.
//
// Purpose:    regions `gdn_core` and `gdn_commit`: `gdn_dots` makes the products of key and query rows of a
//             group, `gdn_core_rows` does several rows of a sequence, `gdn_core_row` one row a sequence.
// Grid:       gdn_dots: x = tiles (rows of one group in a span), y = key heads; gdn_core_rows: x = pieces of 32
//             value columns, y = value heads, z = spans; gdn_core_row: the same.
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
DEVICE void load4(const u16 *p, float (&v)[4]) {
    uint2 r = *(const uint2 *)p;
    v[0] = bf16_low(r.x), v[1] = bf16_high(r.x), v[2] = bf16_low(r.y), v[3] = bf16_high(r.y);
}
DEVICE void load4(const float *p, float (&v)[4]) {
    float4 r = *(const float4 *)p;
    v[0] = r.x, v[1] = r.y, v[2] = r.z, v[3] = r.w;
}
DEVICE float query_scale(u32 key_dim) { return 1.0f / sqrtf((float)key_dim); }

// ---- several rows ---------------------------------------------------------------------------------

// dots [tile][key_head][2][64][64]: k_i·k_l and (scaled q_i)·k_l of a tile's rows i against every row
// l ≤ i of the group; older rows come from the sequence.
template <typename T>
DEVICE void gdn_dots(const Step &step, const T *q, const T *k, float *dots, const GdnSlot &s) {
    extern __shared__ __align__(16) float tile_memory[];
    begin_kernel();
    GroupTile tile = step.tiles[blockIdx.x];
    SpanInfo span = step.spans[tile.span];
    u32 head = blockIdx.y, dim = s.key_dim, keys = s.key_heads * dim, pitch = 68;
    u32 group = (span.position + tile.row - span.first_row) / 64;
    float *kt = tile_memory, *qt = kt + dim * pitch, scale = query_scale(dim);
    const T *old = (const T *)(span.gdn + s.k) + (u64)((group & 1) * s.key_heads + head) * 64 * dim;
    for (u32 e = threadIdx.x; e < 64 * dim; e += 256) {
        u32 i = e / dim, d = e % dim;
        float key = 0.0f, query = 0.0f;
        if (i < tile.first)
            key = widen(old[e]);
        else if (i < tile.first + tile.rows) {
            u64 at = (u64)(tile.row + i - tile.first) * keys + head * dim + d;
            key = widen(k[at]), query = widen(q[at]) * scale;
        }
        kt[d * pitch + i] = key;
        qt[d * pitch + i] = query;
    }
    __syncthreads();
    u32 ti = threadIdx.x >> 4, tl = threadIdx.x & 15, seg = (dim + 3) / 4;
    float *out = dots + ((u64)blockIdx.x * s.key_heads + head) * 2 * 64 * 64;
    if (ti * 4 + 3 < tile.first || ti * 4 >= tile.first + tile.rows) return;
    for (u32 which = 0; which < 2; ++which) {
        const float *rows = which ? qt : kt;
        float part[4][16];
#pragma unroll
        for (u32 p = 0; p < 4; ++p) {
#pragma unroll
            for (int j = 0; j < 16; ++j) part[p][j] = 0.0f;
            for (u32 d = p * seg; d < min((p + 1) * seg, dim); ++d) {
                float4 a = *(const float4 *)(rows + d * pitch + ti * 4), b = *(const float4 *)(kt + d * pitch + tl * 4);
                float x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
                for (int j = 0; j < 16; ++j) part[p][j] = __fmaf_rn(x[j >> 2], y[j & 3], part[p][j]);
            }
        }
#pragma unroll
        for (int j = 0; j < 16; ++j)
            out[(which * 64 + ti * 4 + (j >> 2)) * 64 + tl * 4 + (j & 3)] = four(part[0][j], part[1][j], part[2][j], part[3][j]);
    }
}

#define GDN_DOTS(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) gdn_dots_##NAME(Step step, const T *q, const T *k, float *dots, GdnSlot s) { \
        gdn_dots<T>(step, q, k, dots, s);                                                                     \
    }
GDN_DOTS(bf16, u16)
GDN_DOTS(f32, float)

// Layout of shared memory: S0 [key_dim][32], key and query rows [key_dim][68] of T, weights [64][65],
// u [64][32], sums [16][32], G [64], beta and decays from the start [64].
template <typename T> struct CoreMemory {
    float *s0, *w, *u, *sum, *beta, *start;
    double *decay;
    T *kt, *qt;
    DEVICE CoreMemory(u8 *memory, u32 dim) {
        decay = (double *)memory;
        s0 = (float *)(decay + 64);
        w = s0 + dim * 32;
        u = w + 64 * 65;
        sum = u + 64 * 32;
        beta = sum + 16 * 32;
        start = beta + 64;
        kt = (T *)(start + 64);
        qt = kt + dim * 68;
    }
};

template <typename T>
DEVICE void gdn_core_rows(const Step &step, const T *q, const T *k, const T *v, const float *log_decay, const float *beta,
                          const float *dots, double *running, T *out, u32 ldo, const GdnSlot &s) {
    extern __shared__ __align__(16) u8 memory[];
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    if (span.rows < 2) return;
    u32 dim = s.key_dim, width = s.value_dim, head = blockIdx.y, c0 = blockIdx.x * 32, tid = threadIdx.x;
    u32 key_head = head / (s.value_heads / s.key_heads), keys = s.key_heads * dim, heads = s.value_heads;
    u32 columns = min(32u, width - c0), seg = (dim + 3) / 4;
    CoreMemory<T> mem(memory, dim);
    float scale = query_scale(dim);
    // Tiles of a span are consecutive; find the first.
    u32 tile_index = 0;
    while (step.tiles[tile_index].span != blockIdx.z) ++tile_index;
    u32 c4 = (tid & 7) * 4, r4 = (tid >> 3) * 4, lane = tid & 31, warp = tid >> 5;
    float *boundary[2], *u_rows[2];
    for (u32 p = 0; p < 2; ++p) {
        boundary[p] = (float *)(span.gdn + s.boundary) + (u64)(p * heads + head) * dim * width + c0;
        u_rows[p] = (float *)(span.gdn + s.u) + (u64)(p * heads + head) * 64 * width + c0;
    }
    bool loaded = false;
    for (u32 done = 0; done < span.rows; ++tile_index) {
        GroupTile tile = step.tiles[tile_index];
        u32 position = span.position + done, group = position / 64, first = tile.first, last = first + tile.rows;
        u32 parity = group & 1;
        __syncthreads();
        if (!loaded) {
            for (u32 e = tid; e < dim * 32; e += 128) {
                u32 d = e / 32, c = e % 32;
                mem.s0[e] = c < columns ? boundary[parity][(u64)d * width + c] : 0.0f;
            }
            loaded = true;
        }
        // Running decay: serial, in FP64; earlier rows of the group from the sequence.
        const double *old_decay = (const double *)(span.gdn + s.decay) + (parity * heads + head) * 64;
        if (tid < first) mem.decay[tid] = old_decay[tid];
        if (tid < 64) mem.beta[tid] = tid >= first && tid < last ? beta[(u64)(tile.row + tid - first) * heads + head] : 0.0f;
        __syncthreads();
        if (tid == 0) {
            double g = first ? mem.decay[first - 1] : 0.0;
            for (u32 i = first; i < last; ++i) {
                g = g + (double)log_decay[(u64)(tile.row + i - first) * heads + head];
                mem.decay[i] = g;
            }
        }
        const T *old_k = (const T *)(span.gdn + s.k) + (u64)(parity * s.key_heads + key_head) * 64 * dim;
        for (u32 e = tid; e < 64 * dim; e += 128) {
            u32 i = e / dim, d = e % dim;
            T key = narrow<T>(0.0f), query = key;
            if (i < first)
                key = old_k[e];
            else if (i < last) {
                u64 at = (u64)(tile.row + i - first) * keys + key_head * dim + d;
                key = k[at], query = q[at];
            }
            mem.kt[d * 68 + i] = key;
            mem.qt[d * 68 + i] = query;
        }
        for (u32 e = tid; e < 64 * 32; e += 128) {
            u32 i = e / 32, c = e % 32;
            mem.u[e] = i < first && c < columns ? u_rows[parity][(u64)i * width + c] : 0.0f;
        }
        __syncthreads();
        if (tid < 64) {
            mem.start[tid] = tid < last ? exp_fixed((float)mem.decay[tid]) : 0.0f;
            if (blockIdx.x == 0 && tid >= first && tid < last)
                running[(u64)(tile.row + tid - first) * heads + head] = mem.decay[tid];
        }
        const float *dot = dots + ((u64)tile_index * s.key_heads + key_head) * 2 * 64 * 64;
        for (u32 e = tid; e < 64 * 64; e += 128) {
            u32 i = e / 64, l = e % 64;
            bool used = i >= first && i < last && l < i;
            mem.w[i * 65 + l] = used ? since(mem.decay[i], mem.decay[l]) * dot[e] : 0.0f;
        }
        __syncthreads();

        // S0ᵀk and S0ᵀq of four rows and four columns.
        float from_q[16], from_k[16];
        bool busy = r4 + 3 >= first && r4 < last;
        if (busy) {
            float hold_k[16], hold_q[16];
#pragma unroll
            for (u32 p = 0; p < 4; ++p) {
                float part_k[16], part_q[16];
#pragma unroll
                for (int j = 0; j < 16; ++j) part_k[j] = part_q[j] = 0.0f;
                for (u32 d = p * seg; d < min((p + 1) * seg, dim); ++d) {
                    float4 s4 = *(const float4 *)(mem.s0 + d * 32 + c4);
                    float col[4] = {s4.x, s4.y, s4.z, s4.w}, key4[4], query4[4];
                    load4(mem.kt + d * 68 + r4, key4);
                    load4(mem.qt + d * 68 + r4, query4);
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        float key = key4[r], query = query4[r] * scale;
#pragma unroll
                        for (int c = 0; c < 4; ++c) {
                            part_k[4 * r + c] = __fmaf_rn(key, col[c], part_k[4 * r + c]);
                            part_q[4 * r + c] = __fmaf_rn(query, col[c], part_q[4 * r + c]);
                        }
                    }
                }
#pragma unroll
                for (int j = 0; j < 16; ++j) {
                    if (p == 0) from_k[j] = part_k[j], from_q[j] = part_q[j];
                    if (p == 1) from_k[j] = __fadd_rn(from_k[j], part_k[j]), from_q[j] = __fadd_rn(from_q[j], part_q[j]);
                    if (p == 2) hold_k[j] = part_k[j], hold_q[j] = part_q[j];
                    if (p == 3) {
                        from_k[j] = __fadd_rn(from_k[j], __fadd_rn(hold_k[j], part_k[j]));
                        from_q[j] = __fadd_rn(from_q[j], __fadd_rn(hold_q[j], part_q[j]));
                    }
                }
            }
            // v − e^{G}·S0ᵀk where u will stand.
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                u32 i = r4 + (j >> 2), c = c4 + (j & 3);
                if (i >= first && i < last && c < columns)
                    mem.u[i * 32 + c] =
                        widen(v[(u64)(tile.row + i - first) * heads * width + head * width + c0 + c]) - mem.start[i] * from_k[j];
            }
        }
        __syncthreads();

        // Forward substitution in blocks of 16 rows.
        for (u32 b = first / 16; b * 16 < last; ++b) {
            float early[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (u32 l = 0; l < b * 16; ++l) {
                float value = mem.u[l * 32 + lane];
#pragma unroll
                for (int r = 0; r < 4; ++r)
                    early[r] = __fmaf_rn(mem.w[(b * 16 + warp * 4 + r) * 65 + l], value, early[r]);
            }
#pragma unroll
            for (int r = 0; r < 4; ++r) mem.sum[(warp * 4 + r) * 32 + lane] = early[r];
            __syncthreads();
            if (warp == 0) {
                float known[16];
#pragma unroll
                for (int i = 0; i < 16; ++i) {
                    u32 row = b * 16 + i;
                    float sum = mem.sum[i * 32 + lane], value = mem.u[row * 32 + lane];
#pragma unroll
                    for (int l = 0; l < i; ++l) sum = __fmaf_rn(mem.w[row * 65 + b * 16 + l], known[l], sum);
                    if (row >= first && row < last) value = mem.beta[row] * (value - sum);
                    known[i] = value;
                    mem.u[row * 32 + lane] = value;
                }
            }
            __syncthreads();
        }
        for (u32 e = first * 32 + tid; e < last * 32; e += 128) {
            u32 i = e / 32, c = e % 32;
            if (c < columns) u_rows[parity][(u64)i * width + c] = mem.u[e];
        }

        // Output rows.
        for (u32 e = tid; e < 64 * 64; e += 128) {
            u32 i = e / 64, l = e % 64;
            bool used = i >= first && i < last && l <= i;
            mem.w[i * 65 + l] = used ? since(mem.decay[i], mem.decay[l]) * dot[64 * 64 + e] : 0.0f;
        }
        __syncthreads();
        if (busy) {
            float inner[16];
#pragma unroll
            for (int j = 0; j < 16; ++j) inner[j] = 0.0f;
            for (u32 l = 0; l < last; ++l) {
                float4 u4 = *(const float4 *)(mem.u + l * 32 + c4);
                float col[4] = {u4.x, u4.y, u4.z, u4.w};
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    float weight = mem.w[(r4 + r) * 65 + l];
#pragma unroll
                    for (int c = 0; c < 4; ++c) inner[4 * r + c] = __fmaf_rn(weight, col[c], inner[4 * r + c]);
                }
            }
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                u32 i = r4 + (j >> 2), c = c4 + (j & 3);
                if (i >= first && i < last && c < columns)
                    out[(u64)(tile.row + i - first) * ldo + head * width + c0 + c] =
                        narrow<T>(mem.start[i] * from_q[j] + inner[j]);
            }
        }
        // Region gdn_commit.
        if (last == 64) {
            __syncthreads();
            double total = mem.decay[63];
            if (tid < 64) mem.beta[tid] = since(total, mem.decay[tid]);
            __syncthreads();
            float from_start = mem.start[63];
            for (u32 d0 = r4; d0 < dim; d0 += 64) {
                float next[16];
#pragma unroll
                for (int j = 0; j < 16; ++j) {
                    u32 d = min(d0 + (j >> 2), dim - 1);
                    next[j] = from_start * mem.s0[d * 32 + c4 + (j & 3)];
                }
#pragma unroll 4
                for (u32 l = 0; l < 64; ++l) {
                    float4 u4 = *(const float4 *)(mem.u + l * 32 + c4);
                    float col[4] = {u4.x, u4.y, u4.z, u4.w}, weight = mem.beta[l];
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        float key = weight * widen(mem.kt[min(d0 + r, dim - 1) * 68 + l]);
#pragma unroll
                        for (int c = 0; c < 4; ++c) next[4 * r + c] = __fmaf_rn(key, col[c], next[4 * r + c]);
                    }
                }
#pragma unroll
                for (int j = 0; j < 16; ++j) {
                    u32 d = d0 + (j >> 2), c = c4 + (j & 3);
                    if (d >= dim) continue;
                    mem.s0[d * 32 + c] = next[j];
                    if (c < columns) boundary[parity ^ 1][(u64)d * width + c] = next[j];
                }
            }
        }
        done += tile.rows;
    }
}

#define GDN_CORE_ROWS(NAME, T)                                                                                \
    extern "C" __global__ void __launch_bounds__(128) gdn_core_rows_##NAME(                                   \
        Step step, const T *q, const T *k, const T *v, const float *decay, const float *beta, const float *dots, \
        double *running, T *out, u32 ldo, GdnSlot s) {                                                        \
        gdn_core_rows<T>(step, q, k, v, decay, beta, dots, running, out, ldo, s);                             \
    }
GDN_CORE_ROWS(bf16, u16)
GDN_CORE_ROWS(f32, float)

// ---- one row --------------------------------------------------------------------------------------

template <typename T>
DEVICE void gdn_core_row(const Step &step, const T *q, const T *k, const T *v, const float *log_decay, const float *beta,
                         T *out, u32 ldo, const GdnSlot &s) {
    __shared__ float key[512], query[512], w[2][64], part[2][4][32], u_new[32], from_start, row_since[64];
    __shared__ double decay[64];
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    u32 row = span.first_row;
    if (span.rows != 1) return;
    u32 dim = s.key_dim, width = s.value_dim, head = blockIdx.y, c0 = blockIdx.x * 32, tid = threadIdx.x;
    u32 ratio = s.value_heads / s.key_heads, key_head = head / ratio, keys = s.key_heads * dim, heads = s.value_heads;
    u32 lane = tid & 31, warp = tid >> 5, seg = (dim + 3) / 4, column = c0 + lane;
    u32 i = span.position & 63, parity = span.position / 64 & 1;
    bool present = column < width;
    float *s0 = (float *)(span.gdn + s.boundary) + (u64)(parity * heads + head) * dim * width;
    float *next = (float *)(span.gdn + s.boundary) + (u64)((parity ^ 1) * heads + head) * dim * width;
    float *u = (float *)(span.gdn + s.u) + (u64)(parity * heads + head) * 64 * width;
    double *kept = (double *)(span.gdn + s.decay) + (parity * heads + head) * 64;
    T *rows = (T *)(span.gdn + s.k) + (u64)(parity * s.key_heads + key_head) * 64 * dim;

    for (u32 d = tid; d < dim; d += 128) {
        T value = k[(u64)row * keys + key_head * dim + d];
        key[d] = widen(value);
        query[d] = widen(q[(u64)row * keys + key_head * dim + d]) * query_scale(dim);
        if (c0 == 0 && head % ratio == 0) rows[(u64)i * dim + d] = value;
    }
    if (tid < i) decay[tid] = kept[tid];
    // The boundary state's share needs no other row.
    float sum_k = 0.0f, sum_q = 0.0f;
    __syncthreads();
    if (present) {
        u32 stop = min((warp + 1) * seg, dim);
#pragma unroll 8
        for (u32 d = warp * seg; d < stop; ++d) {
            float x = s0[(u64)d * width + column];
            sum_k = __fmaf_rn(key[d], x, sum_k);
            sum_q = __fmaf_rn(query[d], x, sum_q);
        }
    }
    part[0][warp][lane] = sum_k;
    part[1][warp][lane] = sum_q;
    if (tid == 0) {
        double g = (i ? decay[i - 1] : 0.0) + (double)log_decay[(u64)row * heads + head];
        decay[i] = g;
        from_start = exp_fixed((float)g);
    }
    __syncthreads();
    if (c0 == 0 && tid == 0) kept[i] = decay[i];
    if (tid <= i) row_since[tid] = since(decay[i], decay[tid]);
    __syncthreads();
    // Four lanes a pair of rows, each one part of key_dim.
    for (u32 item = tid; item < (i + 1) * 4 + 127 - ((i + 1) * 4 + 127) % 128; item += 128) {
        u32 l = item >> 2, p = item & 3;
        float a = 0.0f, b = 0.0f;
        if (l <= i) {
            u32 stop = min((p + 1) * seg, dim);
#pragma unroll 8
            for (u32 d = p * seg; d < stop; ++d) {
                float other = l == i ? key[d] : widen(rows[(u64)l * dim + d]);
                a = __fmaf_rn(key[d], other, a);
                b = __fmaf_rn(query[d], other, b);
            }
        }
#pragma unroll
        for (int offset = 1; offset < 4; offset <<= 1) {
            a = __fadd_rn(a, __shfl_xor_sync(~0u, a, offset));
            b = __fadd_rn(b, __shfl_xor_sync(~0u, b, offset));
        }
        if (l <= i && p == 0) w[0][l] = row_since[l] * a, w[1][l] = row_since[l] * b;
    }
    __syncthreads();
    if (warp < 2 && present) {
        float sum = 0.0f;
#pragma unroll 8
        for (u32 l = 0; l < i; ++l) sum = __fmaf_rn(w[warp][l], u[(u64)l * width + column], sum);
        if (warp == 0) {
            float from_k = four(part[0][0][lane], part[0][1][lane], part[0][2][lane], part[0][3][lane]);
            float value = widen(v[(u64)row * heads * width + head * width + column]);
            value = beta[(u64)row * heads + head] * ((value - from_start * from_k) - sum);
            u[(u64)i * width + column] = value;
            u_new[lane] = value;
        } else {
            part[1][0][lane] = four(part[1][0][lane], part[1][1][lane], part[1][2][lane], part[1][3][lane]);
            part[1][1][lane] = sum;
        }
    }
    __syncthreads();
    if (warp == 1 && present) {
        float inner = __fmaf_rn(w[1][i], u_new[lane], part[1][1][lane]);
        out[(u64)row * ldo + head * width + column] = narrow<T>(from_start * part[1][0][lane] + inner);
    }
    // Region gdn_commit.
    if (i == 63 && present) {
        for (u32 d = warp; d < dim; d += 4) {
            float value = from_start * s0[(u64)d * width + column];
#pragma unroll 8
            for (u32 l = 0; l < 64; ++l) {
                float other = l == 63 ? key[d] : widen(rows[(u64)l * dim + d]);
                value = __fmaf_rn(row_since[l] * other, u[(u64)l * width + column], value);
            }
            next[(u64)d * width + column] = value;
        }
    }
}

#define GDN_CORE_ROW(NAME, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128) gdn_core_row_##NAME(                                    \
        Step step, const T *q, const T *k, const T *v, const float *decay, const float *beta, T *out, u32 ldo, GdnSlot s) { \
        gdn_core_row<T>(step, q, k, v, decay, beta, out, ldo, s);                                             \
    }
GDN_CORE_ROW(bf16, u16)
GDN_CORE_ROW(f32, float)
