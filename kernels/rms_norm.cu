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

DEVICE float inverse_rms(float squares, u32 width, float epsilon) {
    return 1.0f / sqrtf(squares / (float)width + epsilon);
}

template <typename T> DEVICE float normed(float x, float r, float w, u32 one_plus) {
    return one_plus ? rounded<T>((x * r) * (1.0f + w)) : rounded<T>(rounded<T>(x * r) * w);
}

// ADD: x is added to the residual first, in place.
template <typename T, bool ADD>
DEVICE void norm_row(const Step &step, T *residual, u32 ldr, const T *x, u32 ldx, const float *weight, T *out, u32 ld,
                     u32 width, float epsilon, u32 one_plus, u32 wide) {
    begin_kernel();
    u32 row = blockIdx.x;
    if (row >= *step.rows) return;
    T *r = residual + (u64)row * ldr;
    const T *a = x + (u64)row * ldx;
    T *o = out + (u64)row * ld;
    float squares = 0.0f;
    for (u32 i = threadIdx.x * 8; i < width; i += 2048) {
        Eight v;
        if (wide) {
            v = load8(r + i);
            if (ADD) {
                Eight y = load8(a + i);
#pragma unroll
                for (int j = 0; j < 8; ++j) v.v[j] = rounded<T>(v.v[j] + y.v[j]);
                store8(r + i, v);
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                v.v[j] = 0.0f;
                if (i + j < width) {
                    v.v[j] = widen(r[i + j]);
                    if (ADD) {
                        v.v[j] = rounded<T>(v.v[j] + widen(a[i + j]));
                        r[i + j] = narrow<T>(v.v[j]);
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) squares = __fmaf_rn(v.v[j], v.v[j], squares);
    }
    float inverse = inverse_rms(block_sum(squares), width, epsilon);
    for (u32 i = threadIdx.x * 8; i < width; i += 2048) {
        if (wide) {
            Eight v = load8(r + i), w = load8(weight + i);
#pragma unroll
            for (int j = 0; j < 8; ++j) v.v[j] = normed<T>(v.v[j], inverse, w.v[j], one_plus);
            store8(o + i, v);
        } else {
            for (u32 j = i; j < min(i + 8, width); ++j)
                o[j] = narrow<T>(normed<T>(widen(r[j]), inverse, weight[j], one_plus));
        }
    }
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
