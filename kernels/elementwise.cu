// elementwise.cu: regions without a reduction.
//
// Purpose:    `embedding`, `residual_add`, `silu_mul`, `q_gate_split`, `attention_output_gate`,
//             `gdn_conv_silu`; rows copied for the head (`gather_rows`) and to and from FP32 (`export_rows`,
//             `import_rows`).
// Grid:       x = pieces of 1024 columns, y = rows of the step; 128 threads, 8 columns each.
// Shapes:     row-major, any width; `ld` elements between rows; 16-byte accesses where `wide` says so.
// Accumulator: none; FP32 arithmetic, one rounding of the result.
// Order:      none: every element by itself.
// Invariance: holds by construction: an element depends on its own operands alone.
// Reference:  backend/cpu/elementwise.rs, bit for bit.
// Gate:       embedding-invariance, residual-add-invariance, silu-mul-invariance

DEVICE u32 first_column() { return (blockIdx.x * 128 + threadIdx.x) * 8; }

template <typename A, typename B, typename O, typename F>
DEVICE void map_piece(const A *a, const B *b, O *out, u32 width, u32 wide, F f) {
    u32 i = first_column();
    if (i >= width) return;
    if (wide) {
        Eight x = load8(a + i), y = load8(b + i), z;
#pragma unroll
        for (int j = 0; j < 8; ++j) z.v[j] = f(x.v[j], y.v[j]);
        store8(out + i, z);
    } else {
        for (u32 j = i; j < min(i + 8, width); ++j) out[j] = narrow<O>(f(widen(a[j]), widen(b[j])));
    }
}

#define EMBEDDING(NAME, W, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128) embedding_##NAME(Step step, const W *weight, T *out, u32 ld,  \
                                                                       u32 width, u32 wide) {                 \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        const W *w = weight + (u64)step.tokens[row] * width;                                                  \
        map_piece(w, w, out + (u64)row * ld, width, wide, [](float x, float) { return x; });                  \
    }
EMBEDDING(bf16_bf16, u16, u16)
EMBEDDING(f32_bf16, float, u16)
EMBEDDING(bf16_f32, u16, float)
EMBEDDING(f32_f32, float, float)

#define RESIDUAL_ADD(NAME, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128) residual_add_##NAME(Step step, T *residual, u32 ld, const T *x, \
                                                                          u32 ldx, u32 width, u32 wide) {     \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        T *r = residual + (u64)row * ld;                                                                      \
        map_piece(r, x + (u64)row * ldx, r, width, wide, [](float a, float b) { return a + b; });             \
    }
RESIDUAL_ADD(bf16, u16)
RESIDUAL_ADD(f32, float)

#define SILU_MUL(NAME, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(128) silu_mul_##NAME(Step step, const T *gate, u32 ldg, const T *up, \
                                                                      u32 ldu, T *out, u32 ld, u32 width, u32 wide) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        map_piece(gate + (u64)row * ldg, up + (u64)row * ldu, out + (u64)row * ld, width, wide,               \
                  [](float g, float u) { return silu(g) * u; });                                              \
    }
SILU_MUL(bf16, u16)
SILU_MUL(f32, float)

#define OUTPUT_GATE(NAME, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) attention_output_gate_##NAME(                           \
        Step step, T *x, u32 ld, const T *gate, u32 ldg, u32 width, u32 wide) {                               \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        T *r = x + (u64)row * ld;                                                                             \
        map_piece(r, gate + (u64)row * ldg, r, width, wide, [](float a, float g) { return a * sigmoid(g); }); \
    }
OUTPUT_GATE(bf16, u16)
OUTPUT_GATE(f32, float)

#define CONV_SILU(NAME, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) gdn_conv_silu_##NAME(Step step, T *x, u32 ld, u32 width, u32 wide) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        T *r = x + (u64)row * ld;                                                                             \
        map_piece(r, r, r, width, wide, [](float a, float) { return silu(a); });                              \
    }
CONV_SILU(bf16, u16)
CONV_SILU(f32, float)

// Per head [q | gate]; columns count over both outputs.
#define GATE_SPLIT(NAME, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(128) q_gate_split_##NAME(                                    \
        Step step, const T *x, u32 ldx, T *q, u32 ldq, T *gate, u32 ldg, u32 heads, u32 head_dim) {           \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        u32 first = first_column();                                                                           \
        for (u32 i = first; i < min(first + 8, 2 * heads * head_dim); ++i) {                                  \
            u32 head = i / (2 * head_dim), d = i % (2 * head_dim);                                            \
            T value = x[(u64)row * ldx + i];                                                                  \
            if (d < head_dim)                                                                                 \
                q[(u64)row * ldq + head * head_dim + d] = value;                                              \
            else                                                                                              \
                gate[(u64)row * ldg + head * head_dim + d - head_dim] = value;                                \
        }                                                                                                     \
    }
GATE_SPLIT(bf16, u16)
GATE_SPLIT(f32, float)

// Row `rows[i]` of x becomes row i of out.
#define GATHER(NAME, T)                                                                                       \
    extern "C" __global__ void __launch_bounds__(128) gather_rows_##NAME(Step step, const u32 *rows, const T *x, u32 ldx, \
                                                                         T *out, u32 ld, u32 width, u32 wide) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        if (row >= *step.rows) return;                                                                        \
        const T *r = x + (u64)rows[row] * ldx;                                                                \
        map_piece(r, r, out + (u64)row * ld, width, wide, [](float a, float) { return a; });                  \
    }
GATHER(bf16, u16)
GATHER(f32, float)

#define EXPORT(NAME, A, B)                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) convert_rows_##NAME(const A *x, u32 ldx, B *out, u32 ld, u32 width) { \
        begin_kernel();                                                                                       \
        u32 row = blockIdx.y;                                                                                 \
        const A *r = x + (u64)row * ldx;                                                                      \
        map_piece(r, r, out + (u64)row * ld, width, 0, [](float a, float) { return a; });                     \
    }
EXPORT(bf16_f32, u16, float)
EXPORT(f32_bf16, float, u16)
EXPORT(f32_f32, float, float)
