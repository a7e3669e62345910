// gdn_inputs.cu: what a gated-delta-net layer does before its core, and what it keeps.
//
// Purpose:    regions `gdn_conv1d` and `gdn_prepare`; `gdn_keep_columns` and `gdn_keep_rows` store the
//             convolution inputs, key rows and running decays that later steps read; `gdn_inputs` is conv1d,
//             conv_silu and prepare for one row a sequence in one launch, `gdn_inputs_rows` for several (rewrites
//             of the plan, bitwise inert).
// Grid:       conv1d, keep_rows: x = pieces of 256 channels, y = rows; keep_columns: y = rows of a span that are
//             kept, z = spans; prepare: x = 8 workers, y = rows; gdn_inputs: x = heads of q, k and v, y = rows;
//             gdn_inputs_rows: x = heads of q, k and v and one more for the decays, y = 64 rows.
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
        SpanInfo span = step.spans[blockIdx.z];                                                               \
        u32 kept = min(span.rows, s.ring), c = blockIdx.x * 256 + threadIdx.x, channels = channels_of(s);     \
        if (blockIdx.y >= kept || c >= channels) return;                                                      \
        u32 in_span = span.rows - kept + blockIdx.y, position = span.position + in_span;                      \
        ((T *)(span.gdn + s.conv))[(u64)(position % s.ring) * channels + c] = x[(u64)(span.first_row + in_span) * ldx + c]; \
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
// norm where the head has one. A warp of its own makes decay and beta of a value head. Weights and the
// sequence's history were there before the step: their share of a sum is made before the wait.
template <typename T>
DEVICE void gdn_inputs(const Step &step, T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b, u32 ldb,
                       const float *a_log, const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta,
                       const GdnSlot &s) {
    constexpr u32 MOST = 4;  // channels of a thread
    __shared__ T activated[128 * MOST];
    allow_next_kernel();
    u32 row = blockIdx.y, head = blockIdx.x, channels = channels_of(s), keys = s.key_heads * s.key_dim, tid = threadIdx.x;
    if (row >= *step.rows) {
        wait_for_previous_kernel();
        return;
    }
    if (tid >= 128) {
        wait_for_previous_kernel();
        if (head < s.value_heads && tid == 128) {
            decay[(u64)row * s.value_heads + head] = log_decay(widen(a[(u64)row * lda + head]) + dt_bias[head], a_log[head]);
            beta[(u64)row * s.value_heads + head] = sigmoid(widen(b[(u64)row * ldb + head]));
        }
        return;
    }
    bool unit = head < 2 * s.key_heads;
    u32 dim = unit ? s.key_dim : s.value_dim;
    u32 first = unit ? head * s.key_dim : 2 * keys + (head - 2 * s.key_heads) * s.value_dim;
    SpanInfo span = step.spans[step.span_of_row[row]];
    T *ring = (T *)(span.gdn + s.conv);
    const T *own = x + (u64)row * ldx;
    u32 position = span.position;
    float earlier[MOST], newest[MOST];
#pragma unroll
    for (u32 j = 0; j < MOST; ++j) {
        u32 c = first + tid + 128 * j;
        earlier[j] = newest[j] = 0.0f;
        if (tid + 128 * j >= dim) continue;
        for (u32 tap = 0; tap + 1 < s.taps; ++tap) {
            u32 back = s.taps - 1 - tap;
            if (position >= back)
                earlier[j] = earlier[j] + widen(ring[(u64)((position - back) % s.ring) * channels + c]) * weight[(u64)tap * channels + c];
        }
        newest[j] = weight[(u64)(s.taps - 1) * channels + c];
    }
    wait_for_previous_kernel();
#pragma unroll
    for (u32 j = 0; j < MOST; ++j) {
        u32 d = tid + 128 * j, c = first + d;
        if (d >= dim) continue;
        float y = rounded<T>(earlier[j] + widen(own[c]) * newest[j]);
        activated[d] = narrow<T>(silu(y));
        ring[(u64)(position % s.ring) * channels + c] = own[c];
        if (!unit) v[(u64)row * s.value_heads * s.value_dim + c - 2 * keys] = activated[d];
    }
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (unit && tid < 32) {
        T *to = head < s.key_heads ? q + (u64)row * keys + head * s.key_dim
                                   : k + (u64)row * keys + (head - s.key_heads) * s.key_dim;
        unit_row(activated, to, dim, tid);
    }
}

#define GDN_INPUTS(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(160) gdn_inputs_##NAME(                                      \
        Step step, T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b, u32 ldb, const float *a_log, \
        const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta, GdnSlot s) {                       \
        gdn_inputs<T>(step, x, ldx, weight, a, lda, b, ldb, a_log, dt_bias, q, k, v, decay, beta, s);         \
    }
GDN_INPUTS(bf16, u16)
GDN_INPUTS(f32, float)

// A warp takes one head of 16 consecutive rows and keeps the convolution's window in registers: heads
// of at most 128 channels, at most four taps.
template <typename T>
DEVICE void gdn_inputs_rows(const Step &step, const T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b,
                            u32 ldb, const float *a_log, const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta,
                            const GdnSlot &s) {
    begin_kernel();
    u32 rows = *step.rows, head = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    if (head == 2 * s.key_heads + s.value_heads) {
        for (u32 e = tid; e < 64 * s.value_heads; e += 128) {
            u32 row = blockIdx.y * 64 + e / s.value_heads, h = e % s.value_heads;
            if (row >= rows) continue;
            decay[(u64)row * s.value_heads + h] = log_decay(widen(a[(u64)row * lda + h]) + dt_bias[h], a_log[h]);
            beta[(u64)row * s.value_heads + h] = sigmoid(widen(b[(u64)row * ldb + h]));
        }
        return;
    }
    u32 begin = blockIdx.y * 64 + warp * 16, end = min(begin + 16, rows);
    if (begin >= end) return;
    bool unit = head < 2 * s.key_heads;
    u32 keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim, channels = 2 * keys + values;
    u32 dim = unit ? s.key_dim : s.value_dim;
    u32 first = unit ? head * s.key_dim : 2 * keys + (head - 2 * s.key_heads) * s.value_dim;
    T *out = !unit ? v + first - 2 * keys : head < s.key_heads ? q + first : k + first - keys;
    u32 pitch = unit ? keys : values;
    // Index 3 is the newest; taps that there are not stay out of the sum.
    float w[4][4], window[4][4], ahead[4];
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        u32 d = lane + 32 * j;
        ahead[j] = d < dim ? widen(x[(u64)begin * ldx + first + d]) : 0.0f;
#pragma unroll
        for (u32 back = 0; back < 4; ++back) {
            w[3 - back][j] = d < dim && back < s.taps ? weight[(u64)(s.taps - 1 - back) * channels + first + d] : 0.0f;
            window[3 - back][j] = 0.0f;
        }
    }
    u32 in = ~0u;
    SpanInfo span;
    for (u32 row = begin; row < end; ++row) {
        u32 which = step.span_of_row[row];
        if (which != in) {
            span = step.spans[which];
            in = which;
            const T *ring = (const T *)(span.gdn + s.conv);
            u32 in_span = row - span.first_row, position = span.position + in_span;
#pragma unroll
            for (u32 back = 1; back < 4; ++back)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    u32 d = lane + 32 * j;
                    // Shifted once before it is used.
                    window[4 - back][j] = 0.0f;
                    if (back < s.taps && position >= back && d < dim)
                        window[4 - back][j] = in_span >= back
                                                  ? widen(x[(u64)(row - back) * ldx + first + d])
                                                  : widen(ring[(u64)((position - back) % s.ring) * channels + first + d]);
                }
        }
        float squares = 0.0f, active[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            u32 d = lane + 32 * j;
#pragma unroll
            for (u32 n = 0; n < 3; ++n) window[n][j] = window[n + 1][j];
            window[3][j] = ahead[j];
            ahead[j] = d < dim && row + 1 < end ? widen(x[(u64)(row + 1) * ldx + first + d]) : 0.0f;
            float sum = 0.0f;
#pragma unroll
            for (u32 n = 0; n < 4; ++n)
                if (3 - n < s.taps) sum = sum + window[n][j] * w[n][j];
            active[j] = rounded<T>(silu(rounded<T>(sum)));
            if (d < dim) squares = __fmaf_rn(active[j], active[j], squares);
        }
        float r = unit ? 1.0f / sqrtf(warp_sum(squares) + 1e-6f) : 1.0f;
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            u32 d = lane + 32 * j;
            if (d < dim) out[(u64)row * pitch + d] = narrow<T>(unit ? active[j] * r : active[j]);
        }
    }
}

#define GDN_INPUTS_ROWS(NAME, T)                                                                              \
    extern "C" __global__ void __launch_bounds__(128) gdn_inputs_rows_##NAME(                                 \
        Step step, const T *x, u32 ldx, const float *weight, const T *a, u32 lda, const T *b, u32 ldb,        \
        const float *a_log, const float *dt_bias, T *q, T *k, T *v, float *decay, float *beta, GdnSlot s) {   \
        gdn_inputs_rows<T>(step, x, ldx, weight, a, lda, b, ldb, a_log, dt_bias, q, k, v, decay, beta, s);    \
    }
GDN_INPUTS_ROWS(bf16, u16)
GDN_INPUTS_ROWS(f32, float)
