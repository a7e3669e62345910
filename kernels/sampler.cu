// sampler.cu: one draw from softmax(logits / T) for every row that wants one.
//
// Purpose:    region `sampler` on the device: `sampler_max`, `sampler_sums` and `sampler_choose`, one after the
//             other. A row with a NaN or an infinity is marked instead of drawn from.
// Grid:       sampler_max: x = 32 pieces of the row, y = draws; sampler_sums: x = blocks of 256 ids, y = draws;
//             sampler_choose: x = draws. 256 threads.
// Shapes:     logits [rows][vocab] FP32; draws [n]; best [n] keys, zero before the launch; sums [n][blocks] FP64.
// Accumulator: FP64; multiply and add apart.
// Order:      weights exp((z − max) / T); a block of 256 ids: one ascending chain from 0; blocks: one ascending
//             chain from 0; an id is taken when the sum before its block plus the chain inside exceeds unit · Z.
// Invariance: a draw depends on its row, T and unit alone.
// Reference:  backend/cpu/softmax64.rs, bit for bit.
// Gate:       resource-safety-llama (draws_are_those_of_the_host)

// As `Draw` of the host lays it out.
struct Draw {
    double temperature, unit;
    u32 row, choosable;  // ids below `choosable` may be drawn
};

constexpr u32 NOT_FINITE = ~0u;

DEVICE u32 ordered(float x) {
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE float value_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

extern "C" __global__ void __launch_bounds__(256) sampler_max_f32(const Draw *draws, const float *logits, u32 vocab,
                                                                  u32 *best) {
    __shared__ u32 top[8];
    begin_kernel();
    Draw draw = draws[blockIdx.y];
    const float *z = logits + (u64)draw.row * vocab;
    u32 key = 0;
    bool bad = false;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < vocab; i += gridDim.x * 256) {
        float x = z[i];
        bad |= !(fabsf(x) <= 3.4028234663852886e38f);
        if (i < draw.choosable) key = max(key, ordered(x));
    }
    // Larger than the key of any finite logit.
    key = __reduce_max_sync(~0u, bad ? NOT_FINITE : key);
    if ((threadIdx.x & 31) == 0) top[threadIdx.x >> 5] = key;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int w = 1; w < 8; ++w) key = max(key, top[w]);
        atomicMax(best + blockIdx.y, key);
    }
}

DEVICE double weight(const Draw &draw, const float *z, u32 id, double top) {
    return id < draw.choosable ? exp64(((double)z[id] - top) / draw.temperature) : 0.0;
}

extern "C" __global__ void __launch_bounds__(256) sampler_sums_f32(const Draw *draws, const float *logits, u32 vocab,
                                                                   const u32 *best, double *sums) {
    __shared__ double weights[256];
    begin_kernel();
    Draw draw = draws[blockIdx.y];
    u32 key = best[blockIdx.y], first = blockIdx.x * 256;
    if (key == NOT_FINITE) return;
    weights[threadIdx.x] = weight(draw, logits + (u64)draw.row * vocab, first + threadIdx.x, (double)value_of(key));
    __syncthreads();
    if (threadIdx.x != 0) return;
    u32 count = draw.choosable > first ? min(draw.choosable - first, 256u) : 0;
    double sum = 0.0;
#pragma unroll 8
    for (u32 i = 0; i < count; ++i) sum = sum + weights[i];
    sums[(u64)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) sampler_choose_f32(const Draw *draws, const float *logits, u32 vocab,
                                                                     const u32 *best, const double *sums, u32 blocks,
                                                                     u32 *ids) {
    extern __shared__ __align__(16) double ends[];  // [blocks]: sums after each block
    __shared__ double weights[256];
    __shared__ u32 found;
    begin_kernel();
    u32 which = blockIdx.x, key = best[which], tid = threadIdx.x;
    Draw draw = draws[which];
    if (key == NOT_FINITE) {
        if (tid == 0) ids[which] = NOT_FINITE;
        return;
    }
    const float *z = logits + (u64)draw.row * vocab;
    double top = (double)value_of(key);
    u32 used = (draw.choosable + 255) / 256;
    for (u32 b = tid; b < used; b += 256) ends[b] = sums[(u64)which * blocks + b];
    if (tid == 0) found = used;
    __syncthreads();
    if (tid == 0) {
        double running = 0.0;
#pragma unroll 8
        for (u32 b = 0; b < used; ++b) running = running + ends[b], ends[b] = running;
    }
    __syncthreads();
    double r = draw.unit * ends[used - 1];
    for (u32 b = tid; b < used; b += 256)
        if (ends[b] > r) atomicMin(&found, b);
    __syncthreads();
    u32 block = found;
    __syncthreads();
    if (block < used) {
        weights[tid] = weight(draw, z, block * 256 + tid, top);
        __syncthreads();
        if (tid == 0) {
            double before = block ? ends[block - 1] : 0.0, sum = 0.0;
            u32 count = min(draw.choosable - block * 256, 256u);
            for (u32 i = 0; i < count; ++i) {
                sum = sum + weights[i];
                if (weights[i] > 0.0 && before + sum > r) {
                    ids[which] = block * 256 + i;
                    found = ~0u;
                    break;
                }
            }
        }
        __syncthreads();
        if (found == ~0u) return;
    }
    // Rounding made r reach the total: the last id of positive weight.
    if (tid == 0) found = 0;
    __syncthreads();
    for (u32 id = tid; id < draw.choosable; id += 256)
        if (weight(draw, z, id, top) > 0.0) atomicMax(&found, id);
    __syncthreads();
    if (tid == 0) ids[which] = found;
}
