// synthetic.cu: seeded weights of realistic scale and entropy, made where they are used.
//
// Purpose:    the synthetic generator, version 1, on the device.
// Grid:       one dimension, grid stride, 256 threads.
// Shapes:     any count of elements.
// Accumulator: none: integers, one exact conversion, one rounding.
// Order:      none: an element depends on (key, index) alone.
// Invariance: holds by construction.
// Reference:  weights/synth.rs, bit for bit.
// Gate:       resource-safety-llama (synthetic_weights_are_those_of_the_host)

extern "C" __global__ void __launch_bounds__(256) synthetic_bf16(u16 *out, u64 count, u64 key, u32 flat, int offset,
                                                                 int factor, float scale) {
    u64 stride = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < count; i += stride) {
        u64 z = key + (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z = z ^ (z >> 31);
        int low = (int)(z & 0xffff);
        int bell = low + (int)((z >> 16) & 0xffff) + (int)((z >> 32) & 0xffff) + (int)(z >> 48) - 131070;
        out[i] = f32_to_bf16(__fmul_rn((float)(offset + (flat ? low : bell) * factor), scale));
    }
}
