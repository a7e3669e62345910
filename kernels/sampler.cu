// sampler.cu: one draw from softmax(logits / T) for every row that wants one.
//
// Purpose:    region `sampler` on the device, behind `greedy`, whose key tells the largest logit and marks a row with
//             a NaN or an infinity, which is not drawn from. The block that arrives last chooses.
// Grid:       x = blocks of 256 ids, y = draws; 256 threads.
// Shapes:     logits [rows][vocab] FP32; best [rows], the keys of `greedy`; sums [draws][blocks] FP64; arrived [draws]
//             counters, zero before and after; ids [draws], also in the host's memory.
// Accumulator: FP64; multiply and add apart.
// Order:      weights exp((z − max) / T); a block of 256 ids: one ascending chain from 0; blocks: one ascending
//             chain from 0; an id is taken when the sum before its block plus the chain inside exceeds unit · Z.
// Invariance: a draw depends on its row, T and unit alone.
// Reference:  backend/cpu/softmax64.rs, bit for bit.
// Gate:       resource-safety-llama (draws_are_those_of_the_host)

// As the host lays it out.
struct Draw {
    double temperature, unit;
    u32 row, choosable;  // ids below `choosable` may be drawn
};
struct Draws {
    Draw of[64];
};

constexpr u32 NOT_FINITE = ~0u;

DEVICE u32 ordered(float x) {
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE float value_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

DEVICE double weight(const Draw &draw, const float *z, u32 id, double top) {
    return id < draw.choosable ? exp64(((double)z[id] - top) / draw.temperature) : 0.0;
}

// values[i] becomes the sum of the first i + 1 of them, one ascending chain.
DEVICE void running_sums(double *values, u32 count) {
    double running = 0.0;
#pragma unroll 8
    for (u32 i = 0; i < count; ++i) running = running + values[i], values[i] = running;
}

extern "C" __global__ void __launch_bounds__(256) sampler_draw_f32(const __grid_constant__ Draws draws, const float *logits,
                                                                   u32 vocab, const u64 *best, double *sums, u32 *arrived,
                                                                   u32 *ids) {
    extern __shared__ __align__(16) double ends[];  // [blocks]: sums after each block
    __shared__ double weights[256];
    __shared__ u32 found, key_of_all;
    begin_kernel();
    u32 which = blockIdx.y, tid = threadIdx.x, first = blockIdx.x * 256;
    const Draw &draw = draws.of[which];
    u64 key = best[draw.row];
    if (key == ~0ull) {
        if (blockIdx.x == 0 && tid == 0) ids[which] = NOT_FINITE;
        return;
    }
    const float *z = logits + (u64)draw.row * vocab;
    u32 top_key = (u32)(key >> 32);
    if (~(u32)key >= draw.choosable) {
        // The largest logit may not be drawn: every block looks for the largest that may.
        if (tid == 0) key_of_all = 0;
        __syncthreads();
        u32 own = 0;
        for (u32 id = tid; id < draw.choosable; id += 256) own = max(own, ordered(z[id]));
        atomicMax(&key_of_all, own);
        __syncthreads();
        top_key = key_of_all;
    }
    double top = (double)value_of(top_key);
    weights[tid] = weight(draw, z, first + tid, top);
    __syncthreads();
    double *row_sums = sums + (u64)which * gridDim.x;
    if (tid == 0) {
        u32 count = draw.choosable > first ? min(draw.choosable - first, 256u) : 0;
        double sum = 0.0;
#pragma unroll 8
        for (u32 i = 0; i < count; ++i) sum = sum + weights[i];
        row_sums[blockIdx.x] = sum;
        __threadfence();
        found = atomicAdd(arrived + which, 1);
    }
    __syncthreads();
    if (found != gridDim.x - 1) return;
    __threadfence();
    u32 used = (draw.choosable + 255) / 256;
    for (u32 b = tid; b < used; b += 256) ends[b] = __ldcg(row_sums + b);
    __syncthreads();
    if (tid == 0) {
        arrived[which] = 0;
        found = used;
        running_sums(ends, used);
    }
    __syncthreads();
    double r = draw.unit * ends[used - 1];
    for (u32 b = tid; b < used; b += 256)
        if (ends[b] > r) atomicMin(&found, b);
    __syncthreads();
    u32 block = found;
    __syncthreads();
    if (block < used) {
        double own = weight(draw, z, block * 256 + tid, top), before = block ? ends[block - 1] : 0.0;
        weights[tid] = own;
        if (tid == 0) found = 256;
        __syncthreads();
        if (tid == 0) running_sums(weights, min(draw.choosable - block * 256, 256u));
        __syncthreads();
        if (own > 0.0 && before + weights[tid] > r) atomicMin(&found, tid);
        __syncthreads();
        if (found < 256) {
            if (tid == 0) ids[which] = block * 256 + found;
            return;
        }
        __syncthreads();
    }
    // Rounding made r reach the total: the last id of positive weight.
    if (tid == 0) found = 0;
    __syncthreads();
    for (u32 id = tid; id < draw.choosable; id += 256)
        if (weight(draw, z, id, top) > 0.0) atomicMax(&found, id);
    __syncthreads();
    if (tid == 0) ids[which] = found;
}
