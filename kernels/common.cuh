// common.cuh: the device vocabulary that every kernel source starts from.
//
// The engine puts this text in front of a kernel source before it is compiled; no source includes
// anything, so that the run-time compiler needs no header directory on the user's machine.
// Conversions are single instructions or bit operations; everything that moves data between
// memories or drives a matrix unit is a thin wrapper of one PTX instruction.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

// Hopper's warpgroup instructions exist in the architecture-specific target only.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

// ---- BF16 ------------------------------------------------------------------------------------

DEVICE float bf16_to_f32(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEVICE float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Round to nearest, ties to even.
DEVICE u16 f32_to_bf16(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

DEVICE u32 f32x2_to_bf16x2(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// ---- global memory ---------------------------------------------------------------------------

// A read that is used once: it does not displace what the first-level cache holds.
DEVICE uint4 load_streamed(const void *address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// A read of data that the previous kernel of a dependent chain wrote: never through the
// read-only path, which may be filled before the dependency is resolved.
DEVICE uint4 load_shared_input(const void *address) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

DEVICE void prefetch_l2(const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Sixteen bytes into shared memory without a register in between; nothing is read and zeros are
// written where `present` is false.
DEVICE void copy_async(u32 destination, const void *source, bool present) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
                 "r"(present ? 16 : 0)
                 : "memory");
}

DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING> DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- dependent launches ----------------------------------------------------------------------
// Without the launch attribute both are no-ops; before Hopper they do not exist.

DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- warp-level matrix instruction (sm_80 and later) -------------------------------------------

// d += a · b: a 16×16 (row), b 16×8 (column), d 16×8 FP32.
DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void mma_m16n8k8(float (&d)[4], const u32 (&a)[2], u32 b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Four 8×8 matrices of 16-bit elements; lanes 8i … 8i+7 give the row addresses of matrix i.
DEVICE void load_matrices(u32 (&d)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

// Four threads of a quad hold four words of one 16-byte piece each; afterwards word `j` of a
// thread is its own word of piece `j`: what the fragments of the matrix instruction expect.
DEVICE void transpose_quad(uint4 &v, u32 lane) {
    bool odd = lane & 1, high = lane & 2;
    u32 s0 = __shfl_xor_sync(~0u, odd ? v.x : v.y, 1);
    u32 s1 = __shfl_xor_sync(~0u, odd ? v.z : v.w, 1);
    if (odd) { v.x = s0; v.z = s1; } else { v.y = s0; v.w = s1; }
    u32 s2 = __shfl_xor_sync(~0u, high ? v.x : v.z, 2);
    u32 s3 = __shfl_xor_sync(~0u, high ? v.y : v.w, 2);
    if (high) { v.x = s2; v.y = s3; } else { v.z = s2; v.w = s3; }
}

// ---- reduction tree of the numerical contract ---------------------------------------------------

// Segments 0 … S−1 as a fixed binary tree, S in {1, 2, 4, 8}.
DEVICE float tree_sum(const float *part, u32 stride, u32 segments) {
    float p[8];
#pragma unroll
    for (u32 s = 0; s < 8; ++s) p[s] = s < segments ? part[s * stride] : 0.0f;
    if (segments == 1) return p[0];
    float a = __fadd_rn(p[0], p[1]);
    if (segments == 2) return a;
    a = __fadd_rn(a, __fadd_rn(p[2], p[3]));
    if (segments == 4) return a;
    float b = __fadd_rn(__fadd_rn(p[4], p[5]), __fadd_rn(p[6], p[7]));
    return __fadd_rn(a, b);
}

// ---- shared memory, barriers, bulk copies (sm_90 and later) --------------------------------------

DEVICE u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

#if __CUDA_ARCH__ >= 900

// A tensor map as the driver encodes it; passed by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    u8 bytes[128];
};

DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

DEVICE void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Makes barrier initialisation visible to the copy engine.
DEVICE void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One box of a two-dimensional tensor (x innermost) into shared memory, completing on `barrier`.
DEVICE void load_box(u32 destination, const TensorMap *map, u32 x, u32 y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

DEVICE void prefetch_tensor_map(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map));
}

DEVICE u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

DEVICE u32 cluster_size() {
    u32 size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A float of another block's shared memory at the same address.
DEVICE float load_cluster(u32 address, u32 rank) {
    float value;
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [remote];\n"
        "}\n"
        : "=f"(value)
        : "r"(address), "r"(rank)
        : "memory");
    return value;
}

DEVICE void named_barrier(u32 id, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

DEVICE void store_matrices_transposed(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

#endif

#if HAS_WGMMA

// Operand descriptor: K-major tile of 128-byte rows, 128-byte swizzle, 8-row groups 1024 bytes apart.
DEVICE u64 swizzled_operand(u32 address) {
    return ((u64)1 << 62) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 16) | ((address & 0x3ffff) >> 4);
}

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Orders ordinary stores to shared memory before reads by the matrix units or the copy engine.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Tells the compiler that asynchronous instructions own these registers up to this point.
template <int N> DEVICE void pin_registers(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int REGISTERS> DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
