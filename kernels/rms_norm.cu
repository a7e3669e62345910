// rms_norm.cu: root-mean-square norms of rows and of heads.
//
// Purpose:    regions `rms_norm` and `per_head_norm`, and `residual_rms_norm`, which adds to the residual
//             stream and normalises it in one pass (a rewrite of the plan, bitwise inert).
// Grid:       rms_norm: one block of 256 threads a row; per_head_norm: x = 4 heads a block, y = rows.
// Shapes:     x [rows][ld], weight FP32 [width]; out as x.
// Accumulator: FP32.
// Order:      a thread sums squares of columns 8t … 8t + 7, then those 2048 further, ascending; lanes by
//             exclusive-or exchange 16, 8, 4, 2, 1; warps ascending. A head: lane sums d, d + 32, …
// Invariance: would break if the split of a row depended on the number of rows.
// Reference:  backend/cpu/rms_norm.rs (another order of the sum), FP64.
// Gate:       rms-norm-invariance, per-head-norm-invariance

DEVICE float block_sum(float x) {
    __shared__ float part[8];
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    float sum = part[0];
#pragma unroll
    for (int w = 1; w < 8; ++w) sum = __fadd_rn(sum, part[w]);
    return sum;
}

// Pieces of 8 columns that a thread keeps in registers: rows of up to 8192.
constexpr u32 PIECES = 4;

// ADD: x is added to the residual first, in place. The weights depend on no kernel and are asked for
// before the wait.
template <typename T, bool ADD>
DEVICE void wide_row(const Step &step, T *residual, u32 ldr, const T *x, u32 ldx, const float *weight, T *out, u32 ld,
                     u32 width, float epsilon, u32 one_plus) {
    u32 row = blockIdx.x, first = threadIdx.x * 8;
    Eight w[PIECES], v[PIECES];
    allow_next_kernel();
#pragma unroll
    for (u32 p = 0; p < PIECES; ++p)
        if (first + p * 2048 < width) w[p] = load8(weight + first + p * 2048);
    wait_for_previous_kernel();
    if (row >= *step.rows) return;
    T *r = residual + (u64)row * ldr + first, *o = out + (u64)row * ld + first;
    const T *a = x + (u64)row * ldx + first;
#pragma unroll
    for (u32 p = 0; p < PIECES; ++p)
        if (first + p * 2048 < width) v[p] = load8(r + p * 2048);
    if (ADD) {
        Eight y[PIECES];
#pragma unroll
        for (u32 p = 0; p < PIECES; ++p)
            if (first + p * 2048 < width) y[p] = load8(a + p * 2048);
#pragma unroll
        for (u32 p = 0; p < PIECES; ++p)
            if (first + p * 2048 < width) {
#pragma unroll
                for (int j = 0; j < 8; ++j) v[p].v[j] = rounded<T>(v[p].v[j] + y[p].v[j]);
                store8(r + p * 2048, v[p]);
            }
    }
    float squares = 0.0f;
#pragma unroll
    for (u32 p = 0; p < PIECES; ++p)
        if (first + p * 2048 < width)
#pragma unroll
            for (int j = 0; j < 8; ++j) squares = __fmaf_rn(v[p].v[j], v[p].v[j], squares);
    float inverse = inverse_rms(block_sum(squares), width, epsilon);
#pragma unroll
    for (u32 p = 0; p < PIECES; ++p)
        if (first + p * 2048 < width) {
#pragma unroll
            for (int j = 0; j < 8; ++j) v[p].v[j] = normed<T>(v[p].v[j], inverse, w[p].v[j], one_plus);
            store8(o + p * 2048, v[p]);
        }
}

// Rows of any width and alignment, read twice.
template <typename T, bool ADD>
DEVICE void any_row(const Step &step, T *residual, u32 ldr, const T *x, u32 ldx, const float *weight, T *out, u32 ld,
                    u32 width, float epsilon, u32 one_plus) {
    begin_kernel();
    u32 row = blockIdx.x;
    if (row >= *step.rows) return;
    T *r = residual + (u64)row * ldr;
    const T *a = x + (u64)row * ldx;
    T *o = out + (u64)row * ld;
    float squares = 0.0f;
    for (u32 i = threadIdx.x * 8; i < width; i += 2048)
        for (u32 j = i; j < min(i + 8, width); ++j) {
            float v = widen(r[j]);
            if (ADD) {
                v = rounded<T>(v + widen(a[j]));
                r[j] = narrow<T>(v);
            }
            squares = __fmaf_rn(v, v, squares);
        }
    float inverse = inverse_rms(block_sum(squares), width, epsilon);
    for (u32 i = threadIdx.x * 8; i < width; i += 2048)
        for (u32 j = i; j < min(i + 8, width); ++j)
            o[j] = narrow<T>(normed<T>(widen(r[j]), inverse, weight[j], one_plus));
}

template <typename T, bool ADD>
DEVICE void norm_row(const Step &step, T *residual, u32 ldr, const T *x, u32 ldx, const float *weight, T *out, u32 ld,
                     u32 width, float epsilon, u32 one_plus, u32 wide) {
    if (wide && width <= PIECES * 2048)
        wide_row<T, ADD>(step, residual, ldr, x, ldx, weight, out, ld, width, epsilon, one_plus);
    else
        any_row<T, ADD>(step, residual, ldr, x, ldx, weight, out, ld, width, epsilon, one_plus);
}

#define RMS_NORM(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) rms_norm_##NAME(                                        \
        Step step, const T *x, u32 ldx, const float *weight, T *out, u32 ld, u32 width, float epsilon, u32 one_plus, \
        u32 wide) {                                                                                           \
        norm_row<T, false>(step, (T *)x, ldx, x, ldx, weight, out, ld, width, epsilon, one_plus, wide);       \
    }
RMS_NORM(bf16, u16)
RMS_NORM(f32, float)

#define RESIDUAL_RMS_NORM(NAME, T)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) residual_rms_norm_##NAME(                               \
        Step step, T *residual, u32 ldr, const T *x, u32 ldx, const float *weight, T *out, u32 ld, u32 width, \
        float epsilon, u32 one_plus, u32 wide) {                                                              \
        norm_row<T, true>(step, residual, ldr, x, ldx, weight, out, ld, width, epsilon, one_plus, wide);      \
    }
RESIDUAL_RMS_NORM(bf16, u16)
RESIDUAL_RMS_NORM(f32, float)

#define PER_HEAD_NORM(NAME, T)                                                                                \
    extern "C" __global__ void __launch_bounds__(128) per_head_norm_##NAME(                                   \
        Step step, T *x, u32 ld, const float *weight, u32 heads, u32 head_dim, float epsilon, u32 one_plus) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, head = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;            \
        if (row >= *step.rows || head >= heads) return;                                                       \
        T *h = x + (u64)row * ld + head * head_dim;                                                           \
        float squares = 0.0f;                                                                                 \
        for (u32 d = lane; d < head_dim; d += 32) squares = __fmaf_rn(widen(h[d]), widen(h[d]), squares);     \
        float inverse = inverse_rms(warp_sum(squares), head_dim, epsilon);                                    \
        for (u32 d = lane; d < head_dim; d += 32)                                                             \
            h[d] = narrow<T>(normed<T>(widen(h[d]), inverse, weight[d], one_plus));                           \
    }
PER_HEAD_NORM(bf16, u16)
PER_HEAD_NORM(f32, float)
