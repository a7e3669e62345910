// gdn_inputs.cu: what a gated-delta-net layer does before its core, and what it keeps.
//
// Purpose:    regions `gdn_conv1d` and `gdn_prepare`; `gdn_keep_columns` and `gdn_keep_rows` store the
//             convolution inputs, key rows and running decays that later steps read; `gdn_inputs` is conv1d, conv_silu and prepare for one row
//             a sequence in one launch (a rewrite of the plan, bitwise inert).
// Grid:       conv1d, keep_*: x = pieces of 256 channels, y = rows; prepare: x = 8 workers, y = rows.
// Shapes:     x and out [rows][ld]; a sequence keeps [ring][channels] inputs, position p at p mod ring.
// Accumulator: FP32; decay in FP64.
// Order:      taps oldest first, multiply and add apart; an L2 norm: lane sums d, d + 32, …, lanes by exchange.
// Invariance: a row reads its own and the taps − 1 rows before it, in this step or from the ring.
// Reference:  backend/cpu/gdn_conv1d.rs (bit for bit), backend/cpu/gdn_prepare.rs (decay bit for bit).
// Gate:       gdn-conv1d-invariance, gdn-prepare-invariance

// Offsets in bytes into a sequence's memory, and the layer's sizes.
struct GdnSlot {
    u64 boundary, u, decay, k, conv;
    u32 key_heads, value_heads, key_dim, value_dim, ring, taps;
};

DEVICE u32 channels_of(const GdnSlot &s) { return 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim; }

// One channel of one row; `x` is the row's own input.
template <typename T>
DEVICE float convolve(const T *x, u32 ldx, const T *ring, const float *weight, u32 c, u32 channels, u32 row_in_span,
                      u32 position, const GdnSlot &s) {
    float sum = 0.0f;
    for (u32 tap = 0; tap < s.taps; ++tap) {
        u32 back = s.taps - 1 - tap;
        if (position < back) continue;
        float value = row_in_span >= back ? widen(x[c - (long long)back * ldx])
                                          : widen(ring[(u64)((position - back) % s.ring) * channels + c]);
        sum = sum + value * weight[(u64)tap * channels + c];
    }
    return rounded<T>(sum);
}

#define GDN_CONV1D(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gdn_conv1d_##NAME(Step step, const T *x, u32 ldx, const float *weight, \
                                                                        T *out, u32 ld, GdnSlot s) {          \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x, channels = channels_of(s);                  \
        if (row >= *step.rows || c >= channels) return;                                                       \
        SpanInfo span = step.spans[step.span_of_row[row]];                                                    \
        float value = convolve(x + (u64)row * ldx, ldx, (const T *)(span.gdn + s.conv), weight, c, channels,  \
                               row - span.first_row, step.positions[row], s);                                 \
        out[(u64)row * ld + c] = narrow<T>(value);                                                            \
    }
GDN_CONV1D(bf16, u16)
GDN_CONV1D(f32, float)

// One head's unit row by one warp.
template <typename T> DEVICE void unit_row(const T *x, T *out, u32 dim, u32 lane) {
    float squares = 0.0f;
    for (u32 d = lane; d < dim; d += 32) squares = __fmaf_rn(widen(x[d]), widen(x[d]), squares);
    float r = 1.0f / sqrtf(warp_sum(squares) + 1e-6f);
    for (u32 d = lane; d < dim; d += 32) out[d] = narrow<T>(widen(x[d]) * r);
}

DEVICE float log_decay(float x, float a_log) {
    double y = (double)x, e = exp64(y > 0.0 ? -y : y), softplus;
    if (y < -12.0)
        softplus = y - e / 2.0 + 5.0 * e * e / 24.0;
    else if (y > 0.0)
        softplus = ln64(y + ln64(1.0 + e));
    else
        softplus = ln64(ln64(1.0 + e));
    float g = (float)-exp64((double)a_log + softplus);
    return g < -1e4f ? -1e4f : g;
}

#define GDN_PREPARE(NAME, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gdn_prepare_##NAME(                                     \
        Step step, const T *qkv, u32 ld, const T *a, u32 lda, const T *b, u32 ldb, const float *a_log,        \
        const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta, GdnSlot s) {                       \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, worker = blockIdx.x, workers = gridDim.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31; \
        if (row >= *step.rows) return;                                                                        \
        u32 keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim;                             \
        const T *x = qkv + (u64)row * ld;                                                                     \
        for (u32 h = worker * 8 + warp; h < 2 * s.key_heads; h += workers * 8) {                              \
            T *to = h < s.key_heads ? q + (u64)row * keys + h * s.key_dim                                     \
                                    : k + (u64)row * keys + (h - s.key_heads) * s.key_dim;                    \
            unit_row(x + h * s.key_dim, to, s.key_dim, lane);                                                 \
        }                                                                                                     \
        for (u32 c = worker * 256 + threadIdx.x; c < values; c += workers * 256)                              \
            v[(u64)row * values + c] = x[2 * keys + c];                                                       \
        for (u32 h = worker * 256 + threadIdx.x; h < s.value_heads; h += workers * 256) {                     \
            decay[(u64)row * s.value_heads + h] = log_decay(widen(a[(u64)row * lda + h]) + dt_bias[h], a_log[h]); \
            beta[(u64)row * s.value_heads + h] = sigmoid(widen(b[(u64)row * ldb + h]));                       \
        }                                                                                                     \
    }
GDN_PREPARE(bf16, u16)
GDN_PREPARE(f32, float)

// Only what the sequence still holds after the step is written: the ring's columns, and rows of the
// last two groups.
#define GDN_KEEP_COLUMNS(NAME, T)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) gdn_keep_columns_##NAME(Step step, const T *x, u32 ldx, GdnSlot s) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x, channels = channels_of(s);                  \
        if (row >= *step.rows || c >= channels) return;                                                       \
        SpanInfo span = step.spans[step.span_of_row[row]];                                                    \
        u32 position = step.positions[row], end = span.position + span.rows;                                  \
        if (end - position <= s.ring)                                                                         \
            ((T *)(span.gdn + s.conv))[(u64)(position % s.ring) * channels + c] = x[(u64)row * ldx + c];      \
    }
GDN_KEEP_COLUMNS(bf16, u16)
GDN_KEEP_COLUMNS(f32, float)

// Of spans of several rows: a single row's are kept by the core itself.
#define GDN_KEEP_ROWS(NAME, T)                                                                                \
    extern "C" __global__ void __launch_bounds__(256) gdn_keep_rows_##NAME(Step step, const T *k, const double *running, \
                                                                           GdnSlot s) {                       \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x;                                             \
        if (row >= *step.rows) return;                                                                        \
        SpanInfo span = step.spans[step.span_of_row[row]];                                                    \
        u32 position = step.positions[row], end = span.position + span.rows;                                  \
        u32 group = position / 64, last = (end - 1) / 64, keys = s.key_heads * s.key_dim;                     \
        if (span.rows < 2 || group + 1 < last) return;                                                        \
        u32 slot = group & 1, i = position & 63;                                                              \
        if (c < keys) {                                                                                       \
            u64 at = ((u64)(slot * s.key_heads + c / s.key_dim) * 64 + i) * s.key_dim + c % s.key_dim;        \
            ((T *)(span.gdn + s.k))[at] = k[(u64)row * keys + c];                                             \
        }                                                                                                     \
        if (c < s.value_heads)                                                                                \
            ((double *)(span.gdn + s.decay))[(slot * s.value_heads + c) * 64 + i] =                           \
                running[(u64)row * s.value_heads + c];                                                        \
    }
GDN_KEEP_ROWS(bf16, u16)
GDN_KEEP_ROWS(f32, float)

// A block takes one head of q, of k, or of v of one row: convolution, rounding, silu, and the unit
// norm where the head has one. Blocks of the first heads also make decay and beta.
template <typename T>
DEVICE void gdn_inputs(const Step &step, T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b, u32 ldb,
                       const float *a_log, const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta,
                       const GdnSlot &s) {
    __shared__ T activated[512];
    begin_kernel();
    u32 row = blockIdx.y, head = blockIdx.x, channels = channels_of(s), keys = s.key_heads * s.key_dim;
    if (row >= *step.rows) return;
    bool unit = head < 2 * s.key_heads;
    u32 dim = unit ? s.key_dim : s.value_dim;
    u32 first = unit ? head * s.key_dim : 2 * keys + (head - 2 * s.key_heads) * s.value_dim;
    SpanInfo span = step.spans[step.span_of_row[row]];
    T *ring = (T *)(span.gdn + s.conv);
    const T *own = x + (u64)row * ldx;
    u32 position = span.position;
    for (u32 d = threadIdx.x; d < dim; d += 128) {
        u32 c = first + d;
        float y = convolve(own, ldx, ring, weight, c, channels, 0, position, s);
        activated[d] = narrow<T>(silu(y));
        ring[(u64)(position % s.ring) * channels + c] = own[c];
        if (!unit) v[(u64)row * s.value_heads * s.value_dim + c - 2 * keys] = activated[d];
    }
    __syncthreads();
    if (unit && threadIdx.x < 32) {
        T *to = head < s.key_heads ? q + (u64)row * keys + head * s.key_dim
                                   : k + (u64)row * keys + (head - s.key_heads) * s.key_dim;
        unit_row(activated, to, dim, threadIdx.x);
    }
    u32 h = head;
    if (h < s.value_heads && threadIdx.x == 64) {
        decay[(u64)row * s.value_heads + h] = log_decay(widen(a[(u64)row * lda + h]) + dt_bias[h], a_log[h]);
        beta[(u64)row * s.value_heads + h] = sigmoid(widen(b[(u64)row * ldb + h]));
    }
}

#define GDN_INPUTS(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(128) gdn_inputs_##NAME(                                      \
        Step step, T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b, u32 ldb, const float *a_log, \
        const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta, GdnSlot s) {                       \
        gdn_inputs<T>(step, x, ldx, weight, a, lda, b, ldb, a_log, dt_bias, q, k, v, decay, beta, s);         \
    }
GDN_INPUTS(bf16, u16)
GDN_INPUTS(f32, float)
