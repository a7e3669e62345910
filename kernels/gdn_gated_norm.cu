// gdn_gated_norm.cu: per-head norm of the delta net's output, gated by silu(z).
//
// Purpose:    region `gdn_gated_norm`.
// Grid:       x = 4 heads a block (a warp each), y = rows.
// Shapes:     x [rows][ld] in place, z [rows][ldz], weight FP32 [head_dim] shared by all heads.
// Accumulator: FP32.
// Order:      lane sums squares of d, d + 32, …; lanes by exclusive-or exchange 16, 8, 4, 2, 1.
// Invariance: a head depends on itself alone.
// Reference:  backend/cpu/gdn_gated_norm.rs (another order of the sum).
// Gate:       gdn-gated-norm-invariance

#define GDN_GATED_NORM(NAME, T)                                                                               \
    extern "C" __global__ void __launch_bounds__(128) gdn_gated_norm_##NAME(                                  \
        Step step, T *x, u32 ld, const T *z, u32 ldz, const float *weight, u32 heads, u32 dim, float epsilon, \
        u32 weight_is_bf16) {                                                                                 \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y, head = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;            \
        if (row >= *step.rows || head >= heads) return;                                                       \
        T *h = x + (u64)row * ld + head * dim;                                                                \
        const T *gate = z + (u64)row * ldz + head * dim;                                                      \
        float squares = 0.0f;                                                                                 \
        for (u32 d = lane; d < dim; d += 32) squares = __fmaf_rn(widen(h[d]), widen(h[d]), squares);          \
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)dim + epsilon);                                     \
        for (u32 d = lane; d < dim; d += 32) {                                                                \
            float m = rounded<T>(widen(h[d]) * r) * weight[d];                                                \
            if (weight_is_bf16) m = rounded<T>(m);                                                            \
            h[d] = narrow<T>(m * silu(widen(gate[d])));                                                       \
        }                                                                                                     \
    }
GDN_GATED_NORM(bf16, u16)
GDN_GATED_NORM(f32, float)
