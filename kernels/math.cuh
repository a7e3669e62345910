// math.cuh: transcendentals in a fixed sequence of operations, and elements of two widths.
//
// The sequences are those of `backend/cpu/math.rs` and `tensor/{math64,trig64}.rs`, and contraction
// is off, so that a device gives the bits of the host. Nothing of the platform's library is used.

// ---- FP32 ------------------------------------------------------------------------------------

DEVICE float power_of_two(int n) { return __uint_as_float((u32)(n + 127) << 23); }

// eˣ: Cody–Waite reduction, a polynomial of degree 7; at most 2 ulp off.
DEVICE float exp_fixed(float x) {
    const float ROUND = 12582912.0f;
    float clamped = fminf(fmaxf(x, -104.0f), 89.0f);
    float shifted = clamped * 1.44269504088896340736f + ROUND;
    float n = shifted - ROUND;
    float r = (clamped - n * 0.69314575f) - n * 1.4286068e-6f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int k = (int)(__float_as_uint(shifted) - __float_as_uint(ROUND));
    int half = k >> 1;
    float y = p * power_of_two(half) * power_of_two(k - half);
    return x != x ? x : y;
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp_fixed(-x)); }
DEVICE float silu(float x) { return x / (1.0f + exp_fixed(-x)); }

// ---- FP64 ------------------------------------------------------------------------------------

DEVICE double bits_to_f64(u64 bits) { return __longlong_as_double((long long)bits); }
DEVICE double power_of_two64(long long n) { return bits_to_f64((u64)(n + 1023) << 52); }

#define LN2_HIGH64 bits_to_f64(0x3fe62e42fee00000ull)
#define LN2_LOW64 bits_to_f64(0x3dea39ef35793c76ull)

DEVICE double exp64(double x) {
    const double ROUND = 6755399441055744.0;
    double clamped = x < -800.0 ? -800.0 : x;
    clamped = clamped > 800.0 ? 800.0 : clamped;
    double shifted = clamped * 1.44269504088896340736 + ROUND;
    double k = shifted - ROUND;
    double high = clamped - k * LN2_HIGH64, low = k * LN2_LOW64;
    double r = high - low, lost = (high - r) - low;
    double q = 1.0 / 6227020800.0;
    q = q * r + 1.0 / 479001600.0;
    q = q * r + 1.0 / 39916800.0;
    q = q * r + 1.0 / 3628800.0;
    q = q * r + 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    double value = 1.0 + (r + (r * r * q + lost));
    long long n = __double_as_longlong(shifted) - __double_as_longlong(ROUND);
    long long half = n >> 1;
    return value * power_of_two64(half) * power_of_two64(n - half);
}

DEVICE double ln64(double x) {
    if (x != x || x < 0.0) return bits_to_f64(0x7ff8000000000000ull);
    if (x == 0.0) return bits_to_f64(0xfff0000000000000ull);
    if (x == bits_to_f64(0x7ff0000000000000ull)) return x;
    long long shift = 0;
    if (x < bits_to_f64(0x0010000000000000ull)) x = x * power_of_two64(54), shift = -54;
    u64 bits = (u64)__double_as_longlong(x);
    long long exponent = (long long)(bits >> 52) - 1023;
    double m = bits_to_f64((bits & 0x000fffffffffffffull) | (1023ull << 52));
    if (m > 1.41421356237309504880) m *= 0.5, exponent += 1;
    double k = (double)(exponent + shift), f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double series = 2.0 / 23.0;
#pragma unroll
    for (int odd = 21; odd >= 3; odd -= 2) series = series * z + 2.0 / (double)odd;
    double correction = s * (f - series * z);
    return k * LN2_HIGH64 - ((correction - k * LN2_LOW64) - f);
}

DEVICE void sin_cos64(double x, double &sine, double &cosine) {
    double n = rint(x * 0.63661977236758134308);
    double r = ((x - n * 1.5707963267341256) - n * 6.077100506303966e-11) - n * 2.0222662487959507e-21;
    double z = r * r, s = 0.0, c = 0.0;
#pragma unroll
    for (int i = 7; i >= 1; --i) {
        double k = 2.0 * i;
        s = (1.0 + s) * (-z / (k * (k + 1.0)));
    }
#pragma unroll
    for (int i = 8; i >= 1; --i) {
        double k = 2.0 * i;
        c = (1.0 + c) * (-z / (k * (k - 1.0)));
    }
    double sin = r + r * s, cos = 1.0 + c;
    switch ((long long)n & 3) {
    case 0: sine = sin, cosine = cos; break;
    case 1: sine = cos, cosine = -sin; break;
    case 2: sine = -sin, cosine = -cos; break;
    default: sine = -cos, cosine = sin;
    }
}

// ---- elements: BF16 bits or FP32 ---------------------------------------------------------------

DEVICE float widen(u16 x) { return bf16_to_f32(x); }
DEVICE float widen(float x) { return x; }

template <typename T> struct Narrow;
template <> struct Narrow<u16> {
    static DEVICE u16 of(float x) { return f32_to_bf16(x); }
};
template <> struct Narrow<float> {
    static DEVICE float of(float x) { return x; }
};
template <typename T> DEVICE T narrow(float x) { return Narrow<T>::of(x); }
// What a value is after the policy's rounding.
template <typename T> DEVICE float rounded(float x) { return widen(narrow<T>(x)); }

struct Eight {
    float v[8];
};

DEVICE Eight load8(const u16 *p) {
    uint4 r = *(const uint4 *)p;
    return {{bf16_low(r.x), bf16_high(r.x), bf16_low(r.y), bf16_high(r.y), bf16_low(r.z), bf16_high(r.z), bf16_low(r.w),
             bf16_high(r.w)}};
}

DEVICE Eight load8(const float *p) {
    float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

DEVICE void store8(u16 *p, const Eight &e) {
    *(uint4 *)p = make_uint4(f32x2_to_bf16x2(e.v[0], e.v[1]), f32x2_to_bf16x2(e.v[2], e.v[3]),
                             f32x2_to_bf16x2(e.v[4], e.v[5]), f32x2_to_bf16x2(e.v[6], e.v[7]));
}

DEVICE void store8(float *p, const Eight &e) {
    *(float4 *)p = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *(float4 *)(p + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
}

// Σ over a warp, the same order in every lane.
DEVICE float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, offset));
    return x;
}

DEVICE float inverse_rms(float squares, u32 width, float epsilon) {
    return 1.0f / sqrtf(squares / (float)width + epsilon);
}

// An element of a norm, after the policy's rounding: x·r·(1 + w), or w times what x·r is rounded to.
template <typename T> DEVICE float normed(float x, float r, float w, u32 one_plus) {
    return one_plus ? rounded<T>((x * r) * (1.0f + w)) : rounded<T>(rounded<T>(x * r) * w);
}

// ---- the step that all kernels of the engine execute -------------------------------------------

// Consecutive rows of one sequence.
struct SpanInfo {
    u32 first_row, rows, position;
    u32 pages;  // index of the sequence's first page address
    u64 gdn;    // address of its gated-delta-net memory
};

// Rows of one group of 64 tokens.
struct GroupTile {
    u32 span, row, first, rows;
};

// Addresses of what the host says about a step; a graph is replayed over other contents.
struct Step {
    const u32 *rows;  // one count; later rows of a launch are padding and exit
    const u32 *tokens, *positions, *span_of_row;
    const SpanInfo *spans;
    const u64 *pages;
    const GroupTile *tiles;
    u64 unused;
};

// Every kernel begins so: its successor may be scheduled, and its predecessor's writes are there.
DEVICE void begin_kernel() {
    allow_next_kernel();
    wait_for_previous_kernel();
}
