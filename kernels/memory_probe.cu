// memory_probe.cu: the memory ceilings that a probe compares itself with, and data to measure on.
//
// Purpose:    `fill_normal_bf16` writes seeded weights of realistic scale and entropy (zeros flatter every
//             matrix product); `read_bf16` and `copy_bf16` give the rate of reading and of copying.
// Grid:       one dimension, grid stride, 256 threads.
// Shapes:     any count of elements (fill), any count of 16-byte pieces (read, copy).
// Accumulator: none; read folds bits by exclusive or, so that nothing can be left out.
// Order:      none matters: exclusive or is associative.
// Invariance: element i of the fill depends on (seed, i) only: an exact map from an integer hash.
// Reference:  backend/cuda/probe/data.rs repeats the fill on the host, bit for bit.
// Gate:       tensor-core-bits

DEVICE u64 splitmix64(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The centred sum of four 16-bit fields of the hash (standard deviation 37837.2), times `scale`:
// one exact conversion, one multiplication, one rounding.
extern "C" __global__ void __launch_bounds__(256) fill_normal_bf16(u16 *out, u64 count, u64 seed, float scale) {
    u64 stride = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < count; i += stride) {
        u64 h = splitmix64(seed ^ (i * 0xd1342543de82ef95ull));
        int sum = (int)(h & 0xffff) + (int)((h >> 16) & 0xffff) + (int)((h >> 32) & 0xffff) + (int)(h >> 48) - 131070;
        out[i] = f32_to_bf16(__fmul_rn((float)sum, scale));
    }
}

extern "C" __global__ void __launch_bounds__(256) read_bf16(const uint4 *in, u64 pieces, u32 *out) {
    u32 fold = 0;
    u64 stride = (u64)gridDim.x * 256;
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    for (; i + 3 * stride < pieces; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = load_streamed(in + i + j * stride);
#pragma unroll
        for (int j = 0; j < 4; ++j) fold ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < pieces; i += stride) {
        uint4 v = load_streamed(in + i);
        fold ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    fold = __reduce_xor_sync(~0u, fold);
    if ((threadIdx.x & 31) == 0) atomicXor(out, fold);
}

extern "C" __global__ void __launch_bounds__(256) copy_bf16(const uint4 *in, uint4 *out, u64 pieces) {
    u64 stride = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < pieces; i += stride) out[i] = load_streamed(in + i);
}
