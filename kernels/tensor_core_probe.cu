// tensor_core_probe.cu: one matrix instruction, or a chain of them, on data of the host's choice.
//
// Purpose:    lets `gates/tensor-core-bits.yaml` ask this GPU what bits its matrix units give.
// Grid:       one block per independent case; mma.sync: one warp, wgmma: one warpgroup.
// Shapes:     a [cases][M][K], b [cases][N][K] BF16; c and d [cases][M][N] FP32;
//             M = 16 (mma.sync) or 64 (wgmma), N = 8 or the named one, K a multiple of 16.
// Accumulator: FP32, started from c; with `zero_start` the first wgmma ignores c instead.
// Order:      ascending K, one instruction per 16 (k8 form: per 8).
// Invariance: this file measures it; nothing here may reorder or combine results.
// Reference:  backend/cuda/probe/matrix_model.rs (bit model), FP64 on the host.
// Gate:       tensor-core-bits

DEVICE u32 pair(const u16 *row, u32 k) { return *(const u32 *)(row + k); }

extern "C" __global__ void mma_probe_k16_bf16(const u16 *a, const u16 *b, const float *c, float *d, u32 K) {
    u32 lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    a += (u64)blockIdx.x * 16 * K;
    b += (u64)blockIdx.x * 8 * K;
    c += (u64)blockIdx.x * 128;
    d += (u64)blockIdx.x * 128;
    float acc[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
    for (u32 k = 0; k < K; k += 16) {
        u32 fa[4] = {pair(a + g * K, k + 2 * t), pair(a + (g + 8) * K, k + 2 * t),
                     pair(a + g * K, k + 2 * t + 8), pair(a + (g + 8) * K, k + 2 * t + 8)};
        u32 fb[2] = {pair(b + g * K, k + 2 * t), pair(b + g * K, k + 2 * t + 8)};
        mma_m16n8k16(acc, fa, fb);
    }
    d[g * 8 + 2 * t] = acc[0];
    d[g * 8 + 2 * t + 1] = acc[1];
    d[(g + 8) * 8 + 2 * t] = acc[2];
    d[(g + 8) * 8 + 2 * t + 1] = acc[3];
}

extern "C" __global__ void mma_probe_k8_bf16(const u16 *a, const u16 *b, const float *c, float *d, u32 K) {
    u32 lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    a += (u64)blockIdx.x * 16 * K;
    b += (u64)blockIdx.x * 8 * K;
    c += (u64)blockIdx.x * 128;
    d += (u64)blockIdx.x * 128;
    float acc[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
    for (u32 k = 0; k < K; k += 8) {
        u32 fa[2] = {pair(a + g * K, k + 2 * t), pair(a + (g + 8) * K, k + 2 * t)};
        mma_m16n8k8(acc, fa, pair(b + g * K, k + 2 * t));
    }
    d[g * 8 + 2 * t] = acc[0];
    d[g * 8 + 2 * t + 1] = acc[1];
    d[(g + 8) * 8 + 2 * t] = acc[2];
    d[(g + 8) * 8 + 2 * t + 1] = acc[3];
}

#if HAS_WGMMA

// Rows of 64 elements into the swizzled layout that operand descriptors describe; columns past K
// are zero.
DEVICE void stage_rows(u16 *tile, const u16 *source, u32 rows, u32 k0, u32 K) {
    for (u32 i = threadIdx.x; i < rows * 64; i += 128) {
        u32 row = i >> 6, k = i & 63, chunk = k >> 3;
        u16 value = k0 + k < K ? source[row * K + k0 + k] : (u16)0;
        tile[row * 64 + ((chunk ^ (row & 7)) << 3) + (k & 7)] = value;
    }
}

template <int N, bool A_IN_REGISTERS>
DEVICE void wgmma_probe(const u16 *a, const u16 *b, const float *c, float *d, u32 K, u32 zero_start) {
    __shared__ alignas(1024) u16 tile_a[64 * 64];
    __shared__ alignas(1024) u16 tile_b[N * 64];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    a += (u64)blockIdx.x * 64 * K;
    b += (u64)blockIdx.x * N * K;
    c += (u64)blockIdx.x * 64 * N;
    d += (u64)blockIdx.x * 64 * N;
    u32 row = warp * 16 + g;
    float acc[N / 2];
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        acc[4 * j] = c[row * N + 8 * j + 2 * t];
        acc[4 * j + 1] = c[row * N + 8 * j + 2 * t + 1];
        acc[4 * j + 2] = c[(row + 8) * N + 8 * j + 2 * t];
        acc[4 * j + 3] = c[(row + 8) * N + 8 * j + 2 * t + 1];
    }
    for (u32 k0 = 0; k0 < K; k0 += 64) {
        __syncthreads();
        stage_rows(tile_a, a, 64, k0, K);
        stage_rows(tile_b, b, N, k0, K);
        fence_async_proxy();
        __syncthreads();
#pragma unroll 1
        for (u32 k = 0; k < 64 && k0 + k < K; k += 16) {
            u64 desc_b = swizzled_operand(shared_address(tile_b) + k * 2);
            u32 accumulate = !(zero_start && k0 + k == 0);
            pin_registers(acc);
            wgmma_fence();
            if (A_IN_REGISTERS) {
                u32 fa[4] = {pair(a + row * K, k0 + k + 2 * t), pair(a + (row + 8) * K, k0 + k + 2 * t),
                             pair(a + row * K, k0 + k + 2 * t + 8), pair(a + (row + 8) * K, k0 + k + 2 * t + 8)};
                Wgmma<N>::run(acc, fa, desc_b, accumulate);
            } else {
                Wgmma<N>::run(acc, swizzled_operand(shared_address(tile_a) + k * 2), desc_b, accumulate);
            }
            wgmma_commit();
            wgmma_wait<0>();
            pin_registers(acc);
        }
    }
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        d[row * N + 8 * j + 2 * t] = acc[4 * j];
        d[row * N + 8 * j + 2 * t + 1] = acc[4 * j + 1];
        d[(row + 8) * N + 8 * j + 2 * t] = acc[4 * j + 2];
        d[(row + 8) * N + 8 * j + 2 * t + 1] = acc[4 * j + 3];
    }
}

#define WGMMA_PROBE(N)                                                                                      \
    extern "C" __global__ void __launch_bounds__(128) wgmma_probe_n##N##_bf16(                               \
        const u16 *a, const u16 *b, const float *c, float *d, u32 K, u32 zero_start) {                       \
        wgmma_probe<N, false>(a, b, c, d, K, zero_start);                                                    \
    }
WGMMA_PROBE(8)
WGMMA_PROBE(16)
WGMMA_PROBE(32)
WGMMA_PROBE(64)
WGMMA_PROBE(128)
WGMMA_PROBE(256)

extern "C" __global__ void __launch_bounds__(128) wgmma_probe_registers_n64_bf16(
    const u16 *a, const u16 *b, const float *c, float *d, u32 K, u32 zero_start) {
    wgmma_probe<64, true>(a, b, c, d, K, zero_start);
}

#endif
