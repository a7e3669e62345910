// greedy.cu: the arg-max of rows of logits, and the next step made of it.
//
// Purpose:    greedy choice: the largest logit, the lowest id on ties; a row with a NaN or an infinity is
//             marked instead of chosen from.
// Grid:       greedy: x = 32 pieces of the vocabulary, y = rows.
// Shapes:     logits [rows][vocab] FP32; best [rows] keys of 64 bits, zero before the launch.
// Accumulator: none: comparisons.
// Order:      none matters: the key orders by value, then by falling id, and the maximum is associative.
// Invariance: holds by construction.
// Reference:  backend/cpu/head.rs (`top`).
// Gate:       reference-llama (greedy tokens)

// Larger floats have larger keys; −0 counts as 0.
DEVICE u64 greedy_key(float x, u32 id) {
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    u32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ((u64)ordered << 32) | (u32)~id;
}

extern "C" __global__ void __launch_bounds__(256) greedy_f32(Step step, const float *logits, u32 vocab, u64 *best) {
    __shared__ u64 top[8];
    begin_kernel();
    u32 row = blockIdx.y;
    if (row >= *step.rows) return;
    const float *z = logits + (u64)row * vocab;
    u64 key = 0;
    bool bad = false;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < vocab; i += gridDim.x * 256) {
        float x = z[i];
        bad |= !(fabsf(x) <= 3.4028234663852886e38f);
        u64 k = greedy_key(x, i);
        key = k > key ? k : key;
    }
    // Not a number, for the host: larger than the key of any finite logit.
    if (bad) key = ~0ull;
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        u64 other = __shfl_xor_sync(~0u, key, offset);
        key = other > key ? other : key;
    }
    if ((threadIdx.x & 31) == 0) top[threadIdx.x >> 5] = key;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int w = 1; w < 8; ++w) key = top[w] > key ? top[w] : key;
        atomicMax(best + row, key);
    }
}
