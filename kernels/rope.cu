// rope.cu: rotary position embedding and the cache.
//
// Purpose:    `rope_table` (cosines and sines of a step's positions, once a step), region `rope`, region
//             `kv_write`; `attention_inputs` is per-head norms, rope and cache write in one launch (a rewrite of
//             the plan, bitwise inert).
// Grid:       x = rows (rope_table), x = pieces of 256 pairs or columns and y = rows (rope, kv_write), x = four
//             heads, a warp each, and y = rows (attention_inputs).
// Shapes:     table [rows][2][half] FP32; x [rows][ld] of heads × head_dim; page [2][kv_head][256][head_dim].
// Accumulator: FP32 of a head's norm; else none: FP32 products and one rounding; angles in FP64.
// Order:      pairs by themselves; a norm sums as per_head_norm does: d, d + 32, … a lane, lanes by exchange.
// Invariance: an angle depends on the absolute position alone.
// Reference:  backend/cpu/rope.rs, bit for bit.
// Gate:       rope-invariance, kv-write-invariance

#define ROPE_TABLE(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(128) rope_table_##NAME(Step step, const float *inverse, float *table, \
                                                                        u32 half) {                           \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.x;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        float position = (float)step.positions[row];                                                          \
        for (u32 j = threadIdx.x; j < half; j += 128) {                                                       \
            double s, c;                                                                                      \
            sin_cos64((double)(position * inverse[j]), s, c);                                                 \
            table[(u64)row * 2 * half + j] = rounded<T>((float)c);                                            \
            table[(u64)row * 2 * half + half + j] = rounded<T>((float)s);                                     \
        }                                                                                                     \
    }
ROPE_TABLE(bf16, u16)
ROPE_TABLE(f32, float)

template <typename T>
DEVICE void rotate_pair(T *head, const float *cosines, const float *sines, u32 j, u32 half, u32 interleaved) {
    u32 a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + half;
    float x1 = widen(head[a]), x2 = widen(head[b]), c = cosines[j], s = sines[j];
    head[a] = narrow<T>(x1 * c - x2 * s);
    head[b] = narrow<T>(x2 * c + x1 * s);
}

#define ROPE(NAME, T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) rope_##NAME(Step step, T *x, u32 ld, u32 heads, u32 head_dim, \
                                                                  const float *table, u32 half, u32 interleaved) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, i = blockIdx.x * 256 + threadIdx.x;                                             \
        if (row >= *step.rows || i >= heads * half) return;                                                   \
        const float *cosines = table + (u64)row * 2 * half;                                                   \
        rotate_pair(x + (u64)row * ld + i / half * head_dim, cosines, cosines + half, i % half, half, interleaved); \
    }
ROPE(bf16, u16)
ROPE(f32, float)

// `slot` is the byte offset of the layer's keys in a page.
#define KV_WRITE(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) kv_write_##NAME(Step step, const T *k, u32 ldk, const T *v, u32 ldv, \
                                                                      u32 kv_heads, u32 head_dim, u64 slot) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, i = blockIdx.x * 256 + threadIdx.x, width = kv_heads * head_dim;                \
        if (row >= *step.rows || i >= width) return;                                                          \
        u32 position = step.positions[row];                                                                   \
        u64 page = step.pages[step.spans[step.span_of_row[row]].pages + position / 256];                      \
        T *keys = (T *)(page + slot), *values = keys + (u64)width * 256;                                      \
        u64 at = (u64)(i / head_dim * 256 + position % 256) * head_dim + i % head_dim;                        \
        keys[at] = k[(u64)row * ldk + i];                                                                     \
        values[at] = v[(u64)row * ldv + i];                                                                   \
    }
KV_WRITE(bf16, u16)
KV_WRITE(f32, float)

// A head of q is normalised (where it has a norm) and rotated into `q_out`, one of k into the cache;
// one of v goes there as it is. A head of q begins `q_stride` elements after the one before it.
template <typename T>
DEVICE void attention_inputs(const Step &step, const T *q, u32 ldq, u32 q_stride, T *q_out, u32 ldo, const T *k, u32 ldk,
                             const T *v, u32 ldv, u32 heads, u32 kv_heads, u32 head_dim, const float *q_norm,
                             const float *k_norm, float epsilon, u32 one_plus, const float *table, u32 half,
                             u32 interleaved, u64 slot) {
    extern __shared__ __align__(16) float heads_memory[];
    begin_kernel();
    u32 row = blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, item = blockIdx.x * 4 + warp;
    if (row >= *step.rows || item >= heads + 2 * kv_heads) return;
    bool is_query = item < heads, is_value = item >= heads + kv_heads;
    u32 kv_head = is_value ? item - heads - kv_heads : item - heads;
    const T *from = is_query ? q + (u64)row * ldq + item * q_stride
                             : (is_value ? v + (u64)row * ldv : k + (u64)row * ldk) + kv_head * head_dim;
    T *to = q_out + (u64)row * ldo + item * head_dim;
    if (!is_query) {
        u32 position = step.positions[row];
        u64 page = step.pages[step.spans[step.span_of_row[row]].pages + position / 256];
        T *keys = (T *)(page + slot), *values = keys + (u64)kv_heads * head_dim * 256;
        to = (is_value ? values : keys) + (u64)(kv_head * 256 + position % 256) * head_dim;
    }
    if (is_value) {
        for (u32 d = lane; d < head_dim; d += 32) to[d] = from[d];
        return;
    }
    const float *weight = is_query ? q_norm : k_norm;
    float *held = heads_memory + warp * head_dim, squares = 0.0f;
    for (u32 d = lane; d < head_dim; d += 32) {
        held[d] = widen(from[d]);
        squares = __fmaf_rn(held[d], held[d], squares);
    }
    if (weight) {
        float inverse = inverse_rms(warp_sum(squares), head_dim, epsilon);
        for (u32 d = lane; d < head_dim; d += 32) held[d] = normed<T>(held[d], inverse, weight[d], one_plus);
    }
    __syncwarp();
    const float *cosines = table + (u64)row * 2 * half, *sines = cosines + half;
    for (u32 j = lane; j < half; j += 32) {
        u32 a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + half;
        float x1 = held[a], x2 = held[b], c = cosines[j], s = sines[j];
        to[a] = narrow<T>(x1 * c - x2 * s);
        to[b] = narrow<T>(x2 * c + x1 * s);
    }
    for (u32 d = 2 * half + lane; d < head_dim; d += 32) to[d] = narrow<T>(held[d]);
}

#define ATTENTION_INPUTS(NAME, T)                                                                             \
    extern "C" __global__ void __launch_bounds__(128) attention_inputs_##NAME(                                \
        Step step, const T *q, u32 ldq, u32 q_stride, T *q_out, u32 ldo, const T *k, u32 ldk, const T *v, u32 ldv, \
        u32 heads, u32 kv_heads, u32 head_dim, const float *q_norm, const float *k_norm, float epsilon, u32 one_plus, \
        const float *table, u32 half, u32 interleaved, u64 slot) {                                            \
        attention_inputs<T>(step, q, ldq, q_stride, q_out, ldo, k, ldk, v, ldv, heads, kv_heads, head_dim, q_norm, \
                            k_norm, epsilon, one_plus, table, half, interleaved, slot);                       \
    }
ATTENTION_INPUTS(bf16, u16)
ATTENTION_INPUTS(f32, float)
