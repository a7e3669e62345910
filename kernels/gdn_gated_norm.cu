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

DEVICE float gated(float m, float gate) { return m * silu(gate); }

template <typename T>
DEVICE void gdn_gated_norm(const Step &step, T *x, u32 ld, const T *z, u32 ldz, const float *weight, u32 heads, u32 dim,
                           float epsilon, u32 weight_is_bf16) {
    constexpr u32 MOST = 4;  // columns that a lane keeps: heads of up to 128
    u32 row = blockIdx.y, head = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    float w[MOST], v[MOST], g[MOST];
    allow_next_kernel();
    // The weights depend on no kernel.
#pragma unroll
    for (u32 j = 0; j < MOST; ++j) w[j] = lane + 32 * j < dim ? weight[lane + 32 * j] : 0.0f;
    wait_for_previous_kernel();
    if (row >= *step.rows || head >= heads) return;
    T *h = x + (u64)row * ld + head * dim;
    const T *gate = z + (u64)row * ldz + head * dim;
    float squares = 0.0f;
    auto value = [&](float y, float r, float weight_of, float gate_of) {
        float m = rounded<T>(y * r) * weight_of;
        if (weight_is_bf16) m = rounded<T>(m);
        return narrow<T>(gated(m, gate_of));
    };
    if (dim <= 32 * MOST) {
#pragma unroll
        for (u32 j = 0; j < MOST; ++j) {
            u32 d = lane + 32 * j;
            v[j] = d < dim ? widen(h[d]) : 0.0f, g[j] = d < dim ? widen(gate[d]) : 0.0f;
        }
#pragma unroll
        for (u32 j = 0; j < MOST; ++j)
            if (lane + 32 * j < dim) squares = __fmaf_rn(v[j], v[j], squares);
        float r = inverse_rms(warp_sum(squares), dim, epsilon);
#pragma unroll
        for (u32 j = 0; j < MOST; ++j)
            if (lane + 32 * j < dim) h[lane + 32 * j] = value(v[j], r, w[j], g[j]);
        return;
    }
    for (u32 d = lane; d < dim; d += 32) squares = __fmaf_rn(widen(h[d]), widen(h[d]), squares);
    float r = inverse_rms(warp_sum(squares), dim, epsilon);
    for (u32 d = lane; d < dim; d += 32) h[d] = value(widen(h[d]), r, weight[d], widen(gate[d]));
}

#define GDN_GATED_NORM(NAME, T)                                                                               \
    extern "C" __global__ void __launch_bounds__(128) gdn_gated_norm_##NAME(                                  \
        Step step, T *x, u32 ld, const T *z, u32 ldz, const float *weight, u32 heads, u32 dim, float epsilon, \
        u32 weight_is_bf16) {                                                                                 \
        gdn_gated_norm<T>(step, x, ld, z, ldz, weight, heads, dim, epsilon, weight_is_bf16);                  \
    }
GDN_GATED_NORM(bf16, u16)
GDN_GATED_NORM(f32, float)
