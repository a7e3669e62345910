// gemm.cu: Y = X · Wᵀ, BF16 in and out, in the fixed order of the numerical contract.
//
// Purpose:    the `gemm` region: `gemm_rows` for few tokens (bound by reading W once), `gate_up_rows` for two
//             weights and the activation of their products (region `gate_up`), `gemm_tile` for many tokens (bound
//             by the matrix units); `gemm_serial` for operands that these do not take (FP32, or
//             a ragged K); `gemv_fast` is the FMA form they are measured against.
// Grid:       gemm_rows: x = tiles of 16 weight rows (8 / S tiles a block), y = groups of 8·NT tokens;
//             gemm_tile: persistent blocks (or clusters that share a tile's segments), tokens fastest.
// Shapes:     W [M][K], X [N][K], Y [N][ldy ≥ M], K a multiple of 8; for gemm_tile M and ldy of 8.
// Accumulator: FP32 of the matrix instruction; weights are its M side, tokens its N side.
// Order:      K in S segments (S = the largest of 8, 4, 2 with K mod 64·S = 0, else 1); ascending 16s inside a
//             segment; segments as a fixed binary tree in FP32; one rounding to BF16.
// Invariance: would break if a segment were split, if tokens took the M side in some shape, if partial
//             results were added in order of arrival, or if the two matrix instructions differed in bits
//             (gate tensor-core-bits establishes on the device that they do not).
// Reference:  FP64 on the host; backend/cpu gemm for the tree.
// Gate:       tensor-core-bits (gemm_rows fact)

// ---- few tokens ----------------------------------------------------------------------------------

// NT groups of 8 tokens; a warp owns one segment of 16 weight rows (of a PAIR 8, and the same 8 of a
// second weight) and keeps STAGES − 1 chunks of 64 k on their way into its own ring in shared memory. X
// goes from the cache to registers, X_DEPTH
// chunks ahead. The weights of the first chunks do not depend on the previous kernel and are asked
// for before its end unless `wait_first`; `next` names the weights that the next kernel will read.
template <int NT, int STAGES, int X_DEPTH, bool PAIR = false, typename TY = u16>
DEVICE void gemm_rows(const u16 *W, const u16 *X, TY *Y, u32 M, u32 N, u32 K, u32 ldy, u32 segments,
                      u32 wait_first, const u8 *next, u32 next_bytes, const u16 *W2 = nullptr) {
    extern __shared__ __align__(128) u8 ring[];
    constexpr u32 ROWS = 16, STAGE_BYTES = ROWS * 128, TOKENS = 8 * NT, FETCHES = ROWS / 4, OUT = PAIR ? ROWS / 2 : ROWS;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    u32 tiles = 8 / segments, tile = warp / segments, segment = warp % segments;
    u32 m0 = (blockIdx.x * tiles + tile) * OUT, n0 = blockIdx.y * TOKENS;
    u32 span = K / segments, k_begin = segment * span, chunks = (span + 63) / 64;

    allow_next_kernel();
    if (wait_first) wait_for_previous_kernel();

    // A group of 8 lanes fetches the 128 bytes of one row; pieces of a row are swizzled.
    u32 base = shared_address(ring) + warp * STAGES * STAGE_BYTES;
    u32 fetch_row = lane >> 3, piece = lane & 7;
    const u16 *w[FETCHES];
    u32 to[FETCHES];
#pragma unroll
    for (u32 j = 0; j < FETCHES; ++j) {
        u32 row = 4 * j + fetch_row;
        const u16 *from = PAIR && row >= OUT ? W2 : W;
        w[j] = from + (u64)min(m0 + row % OUT, M - 1) * K + k_begin + 8 * piece;
        to[j] = base + row * 128 + ((piece ^ (row & 7)) << 4);
    }
    auto fetch_w = [&](u32 slot, u32 chunk) {
        if (chunk < chunks)
#pragma unroll
            for (u32 j = 0; j < FETCHES; ++j)
                copy_async(to[j] + slot * STAGE_BYTES, w[j] + chunk * 64, chunk * 64 + 8 * piece < span);
        copy_async_commit();
    };
    const u16 *x_row[NT];
#pragma unroll
    for (int j = 0; j < NT; ++j) x_row[j] = X + (u64)min(n0 + 8 * j + g, N - 1) * K + k_begin + 8 * t;
    uint4 x[X_DEPTH][NT][2];
    auto fetch_x = [&](int slot, u32 chunk) {
        u32 k = chunk * 64;
#pragma unroll
        for (int j = 0; j < NT; ++j)
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                bool present = n0 + 8 * j + g < N && chunk < chunks && k + 8 * t + 32 * half < span;
                x[slot][j][half] = present ? load_shared_input(x_row[j] + k + 32 * half) : make_uint4(0, 0, 0, 0);
            }
    };

#pragma unroll
    for (u32 i = 0; i < STAGES - 1; ++i) fetch_w(i, i);
    if (!wait_first) wait_for_previous_kernel();
#pragma unroll
    for (int i = 0; i < X_DEPTH; ++i) fetch_x(i, i);

    float acc[NT][4];
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[j][i] = 0.0f;

    // Rows 0 … 15 and two pieces a 16-k step, as the fragment of A wants them.
    u32 from = base + (lane & (ROWS - 1)) * 128, read_piece = lane >> 4, row_swizzle = lane & 7;
    u32 slot = 0, fetch_slot = STAGES - 1;
    for (u32 outer = 0; outer < chunks; outer += X_DEPTH) {
#pragma unroll
        for (int i = 0; i < X_DEPTH; ++i) {
            u32 chunk = outer + i;
            if (chunk >= chunks) break;
            copy_async_wait<STAGES - 2>();
            __syncwarp();
            fetch_w(fetch_slot, chunk + STAGES - 1);
            u32 b[NT][4][2];
#pragma unroll
            for (int j = 0; j < NT; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    uint4 v = x[i][j][half];
                    transpose_quad(v, lane);
                    b[j][2 * half][0] = v.x, b[j][2 * half][1] = v.y;
                    b[j][2 * half + 1][0] = v.z, b[j][2 * half + 1][1] = v.w;
                }
            fetch_x(i, chunk + X_DEPTH);
#pragma unroll
            for (u32 step = 0; step < 4; ++step) {
                u32 a[4];
                load_matrices(a, from + slot * STAGE_BYTES + (((2 * step + read_piece) ^ row_swizzle) << 4));
#pragma unroll
                for (int j = 0; j < NT; ++j) mma_m16n8k16(acc[j], a, b[j][step]);
            }
            if (++slot == STAGES) slot = 0;
            if (++fetch_slot == STAGES) fetch_slot = 0;
        }
    }

    // Blocks of the last wave ask for the start of the next kernel's weights.
    if (next_bytes != 0) {
        u32 helpers = min(gridDim.x * gridDim.y, 264u);
        u32 block = blockIdx.y * gridDim.x + blockIdx.x, first = gridDim.x * gridDim.y - helpers;
        if (block >= first)
            for (u32 line = (block - first) * 256 + threadIdx.x; (u64)line * 128 < next_bytes; line += helpers * 256)
                prefetch_l2(next + (u64)line * 128);
    }

    // The warp's ring becomes its partial tile, [token][row].
    copy_async_wait<0>();
    __syncwarp();
    constexpr u32 RING_FLOATS = STAGES * STAGE_BYTES / 4;
    float *part = (float *)ring;
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int i = 0; i < ROWS / 4; ++i)
            part[warp * RING_FLOATS + (8 * j + 2 * t + (i & 1)) * ROWS + g + (i >> 1) * 8] = acc[j][i];
    __syncthreads();
    for (u32 e = threadIdx.x; e < tiles * TOKENS * OUT; e += 256) {
        u32 row = e % OUT, token = e / OUT % TOKENS, which = e / (OUT * TOKENS);
        u32 m = (blockIdx.x * tiles + which) * OUT + row;
        if (m < M && n0 + token < N) {
            const float *p = part + which * segments * RING_FLOATS + token * ROWS + row;
            if (PAIR) {
                float gate = rounded<u16>(tree_sum(p, RING_FLOATS, segments));
                float up = rounded<u16>(tree_sum(p + OUT, RING_FLOATS, segments));
                Y[(u64)(n0 + token) * ldy + m] = narrow<TY>(silu(gate) * up);
                continue;
            }
            Y[(u64)(n0 + token) * ldy + m] = narrow<TY>(tree_sum(p, RING_FLOATS, segments));
        }
    }
}

#define GEMM_ROWS(N_MAX, NT, STAGES, X_DEPTH, BLOCKS)                                                         \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) gemm_rows_invariant_n##N_MAX##_bf16(              \
        const u16 *W, const u16 *X, u16 *Y, u32 M, u32 N, u32 K, u32 ldy, u32 segments, u32 wait_first,       \
        const u8 *next, u32 next_bytes) {                                                                    \
        gemm_rows<NT, STAGES, X_DEPTH>(W, X, Y, M, N, K, ldy, segments, wait_first, next, next_bytes);    \
    }
GEMM_ROWS(8, 1, 3, 2, 4)
GEMM_ROWS(16, 2, 4, 1, 3)
GEMM_ROWS(32, 4, 4, 1, 2)
GEMM_ROWS(64, 8, 4, 1, 1)

// W and W2 [M][K] are the gate and up projections; both products are rounded as if they were stored.
extern "C" __global__ void __launch_bounds__(256, 4) gate_up_rows_invariant_n8_bf16(
    const u16 *W, const u16 *X, u16 *Y, u32 M, u32 N, u32 K, u32 ldy, u32 segments, u32 wait_first, const u8 *next,
    u32 next_bytes, const u16 *W2) {
    gemm_rows<1, 3, 2, true>(W, X, Y, M, N, K, ldy, segments, wait_first, next, next_bytes, W2);
}

// Region `gemm_f32`: the same sums, not rounded.
#define GEMM_F32_ROWS(N_MAX, NT, STAGES, X_DEPTH, BLOCKS)                                                     \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) gemm_rows_invariant_n##N_MAX##_f32(               \
        const u16 *W, const u16 *X, float *Y, u32 M, u32 N, u32 K, u32 ldy, u32 segments, u32 wait_first,     \
        const u8 *next, u32 next_bytes) {                                                                    \
        gemm_rows<NT, STAGES, X_DEPTH>(W, X, Y, M, N, K, ldy, segments, wait_first, next, next_bytes);    \
    }
GEMM_F32_ROWS(8, 1, 3, 2, 4)
GEMM_F32_ROWS(16, 2, 4, 1, 3)
GEMM_F32_ROWS(32, 4, 4, 1, 2)
GEMM_F32_ROWS(64, 8, 4, 1, 1)

// ---- operands that the matrix units do not take ---------------------------------------------------

// FP32 activations or weights, and a K that is no multiple of 8: one fused multiply-add after the
// other in ascending k inside a segment, segments by the tree. A block takes 64 weight rows × 32 tokens.
template <typename TX, typename TW, typename TY>
DEVICE void gemm_serial(const TW *W, const TX *X, TY *Y, u32 M, u32 N, u32 K, u32 ldy, u32 segments) {
    __shared__ float w_tile[16][68], x_tile[16][36];
    begin_kernel();
    u32 m0 = blockIdx.x * 64, n0 = blockIdx.y * 32, tm = (threadIdx.x & 15) * 4, tn = (threadIdx.x >> 4) * 2;
    u32 span = K / segments;
    float level[3][8], acc[8];
    for (u32 segment = 0; segment < segments; ++segment) {
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] = 0.0f;
        u32 end = (segment + 1) * span;
        for (u32 k0 = segment * span; k0 < end; k0 += 16) {
            __syncthreads();
            for (u32 e = threadIdx.x; e < 96 * 16; e += 256) {
                u32 row = e / 16, k = k0 + e % 16;
                if (row < 64)
                    w_tile[e % 16][row] = m0 + row < M && k < end ? widen(W[(u64)(m0 + row) * K + k]) : 0.0f;
                else
                    x_tile[e % 16][row - 64] = n0 + row - 64 < N && k < end ? widen(X[(u64)(n0 + row - 64) * K + k]) : 0.0f;
            }
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < 16; ++k) {
                float4 w = *(const float4 *)&w_tile[k][tm];
                float2 x = *(const float2 *)&x_tile[k][tn];
                float a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int i = 0; i < 8; ++i) acc[i] = __fmaf_rn(a[i & 3], i < 4 ? x.x : x.y, acc[i]);
            }
        }
        // Finished subtrees wait at their level until their sibling is there.
#pragma unroll
        for (u32 l = 0; l < 3; ++l) {
            if ((segment >> l & 1) == 0) {
#pragma unroll
                for (int i = 0; i < 8; ++i) level[l][i] = acc[i];
                break;
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[i] = __fadd_rn(level[l][i], acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        u32 m = m0 + tm + (i & 3), n = n0 + tn + (i >> 2);
        if (m < M && n < N) Y[(u64)n * ldy + m] = narrow<TY>(acc[i]);
    }
}

// Named by the types of X, W and Y.
#define GEMM_SERIAL(NAME, TX, TW, TY)                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gemm_serial_##NAME(const TW *W, const TX *X, TY *Y, u32 M, u32 N, \
                                                                         u32 K, u32 ldy, u32 segments) {      \
        gemm_serial<TX, TW, TY>(W, X, Y, M, N, K, ldy, segments);                                             \
    }
GEMM_SERIAL(f32_bf16_f32, float, u16, float)
GEMM_SERIAL(f32_f32_f32, float, float, float)
GEMM_SERIAL(bf16_bf16_bf16, u16, u16, u16)
GEMM_SERIAL(bf16_f32_bf16, u16, float, u16)
GEMM_SERIAL(bf16_bf16_f32, u16, u16, float)
GEMM_SERIAL(bf16_f32_f32, u16, float, float)

// The FMA form: a warp takes four rows, lanes stride K; one token; not invariant.
extern "C" __global__ void __launch_bounds__(256) gemv_fast_bf16(const u16 *W, const u16 *X, u16 *Y, u32 M, u32 K) {
    u32 lane = threadIdx.x & 31, row = (blockIdx.x * 8 + (threadIdx.x >> 5)) * 4;
    if (row >= M) return;
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (u32 k = lane * 8; k < K; k += 256) {
        uint4 w[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) w[r] = load_streamed(W + (u64)min(row + r, M - 1) * K + k);
        uint4 v = load_shared_input(X + k);
        u32 x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            u32 p[4] = {w[r].x, w[r].y, w[r].z, w[r].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                sum[r] = fmaf(bf16_low(p[i]), bf16_low(x[i]), sum[r]);
                sum[r] = fmaf(bf16_high(p[i]), bf16_high(x[i]), sum[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) sum[r] += __shfl_xor_sync(~0u, sum[r], offset);
    if (lane < 4 && row + lane < M)
        Y[row + lane] = f32_to_bf16(lane == 0 ? sum[0] : lane == 1 ? sum[1] : lane == 2 ? sum[2] : sum[3]);
}

// ---- many tokens ---------------------------------------------------------------------------------

#if HAS_WGMMA

// A block takes 64·GROUPS weight rows × BN tokens; one producer warp keeps STAGES boxes of 64 k in
// flight, GROUPS warpgroups multiply. Partial sums of the tree: the newest in the accumulator,
// levels 0 and 1 in registers, level 2 in shared memory, upper levels across a cluster that shares
// the tile (each block then owns a subtree). A cluster takes exactly one tile: its blocks meet twice
// at the end, so that none leaves while another still reads its shared memory.
template <int BN, int GROUPS, int STAGES> struct TileShape {
    static constexpr u32 BM = 64 * GROUPS, A_BYTES = BM * 128, STAGE_BYTES = A_BYTES + BN * 128;
    static constexpr u32 TREE_BYTES = GROUPS * 64 * BN * 4;
    // One warpgroup multiplying leaves registers enough for everybody; two take them from the producer.
    static constexpr u32 PRODUCERS = GROUPS > 1 ? 128 : 32;
};

template <int N> DEVICE void keep(float (&to)[N], const float (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = from[i];
}

template <int N> DEVICE void add_to(float (&to)[N], const float (&earlier)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = __fadd_rn(earlier[i], to[i]);
}

template <int BN, int GROUPS, int STAGES>
DEVICE void gemm_tile(const TensorMap &map_w, const TensorMap &map_x, u16 *Y, u32 M, u32 N, u32 K, u32 ldy,
                      u32 segments) {
    using Shape = TileShape<BN, GROUPS, STAGES>;
    constexpr int ACC = BN / 2;
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    u32 stages = (shared_address(memory) + 1023) & ~1023u;
    float *tree = (float *)(memory + (stages - shared_address(memory)) + STAGES * Shape::STAGE_BYTES);
    u32 full = shared_address(barriers), empty = full + 8 * STAGES;

    u32 blocks = cluster_size(), rank = cluster_rank();
    u32 own = segments / blocks, first_segment = rank * own;
    u32 n_tiles = (N + BN - 1) / BN, tiles = (M + Shape::BM - 1) / Shape::BM * n_tiles;
    u32 stride = gridDim.x / blocks, first_tile = blockIdx.x / blocks;
    u32 span = K / segments, chunks = (span + 63) / 64;

    allow_next_kernel();
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(empty + 8 * s, GROUPS);
        }
        fence_barrier_init();
    }
    __syncthreads();

    if (threadIdx.x >= GROUPS * 128) {
        if (GROUPS > 1) give_registers<24>();
        if (threadIdx.x == GROUPS * 128) {
            prefetch_tensor_map(&map_w);
            prefetch_tensor_map(&map_x);
            u32 step = 0;
            bool waited = false;
            for (u32 tile = first_tile; tile < tiles; tile += stride) {
                u32 m0 = tile / n_tiles * Shape::BM, n0 = tile % n_tiles * BN;
                for (u32 c = 0; c < own * chunks; ++c, ++step) {
                    u32 slot = step % STAGES, k = first_segment * span + c / chunks * span + c % chunks * 64;
                    u32 stage = stages + slot * Shape::STAGE_BYTES, barrier = full + 8 * slot;
                    if (step >= STAGES) mbarrier_wait(empty + 8 * slot, (step / STAGES - 1) & 1);
                    mbarrier_expect(barrier, Shape::STAGE_BYTES);
                    load_box(stage, &map_w, k, m0, barrier);
                    if (!waited) {
                        wait_for_previous_kernel();
                        waited = true;
                    }
                    load_box(stage + Shape::A_BYTES, &map_x, k, n0, barrier);
                }
            }
        }
        if (blocks > 1) {
            __syncwarp();
            cluster_sync();
            cluster_sync();
        }
    } else {
        if (GROUPS > 1) take_registers<240>();
        u32 group = threadIdx.x / 128, tid = threadIdx.x % 128, lane = tid & 31, warp = tid >> 5;
        float *own_tree = tree + group * 64 * BN;
        float acc[ACC];
        u32 slot = 0, parity = 0;
        // 64 k of the ring's next stage; `fresh` ignores what the accumulators held.
        auto multiply = [&](bool fresh) {
            u32 stage = stages + slot * Shape::STAGE_BYTES;
            mbarrier_wait(full + 8 * slot, parity);
            u64 desc_a = swizzled_operand(stage + group * 64 * 128);
            u64 desc_b = swizzled_operand(stage + Shape::A_BYTES);
            wgmma_fence();
#pragma unroll
            for (u32 k = 0; k < 4; ++k) Wgmma<BN>::run(acc, desc_a + 2 * k, desc_b + 2 * k, !(fresh && k == 0));
            wgmma_commit();
        };
        auto advance = [&]() {
            if (++slot == STAGES) slot = 0, parity ^= 1;
        };
        // One segment: the stage before the newest is released as soon as its products are in.
        auto accumulate = [&]() {
            multiply(true);
            u32 last = slot;
            advance();
#pragma unroll 1
            for (u32 c = 1; c < chunks; ++c) {
                multiply(false);
                wgmma_wait<1>();
                if (tid == 0) mbarrier_arrive(empty + 8 * last);
                last = slot;
                advance();
            }
            wgmma_wait<0>();
            pin_registers(acc);
            if (tid == 0) mbarrier_arrive(empty + 8 * last);
        };
        wait_for_previous_kernel();
        for (u32 tile = first_tile; tile < tiles; tile += stride) {
            u32 m0 = tile / n_tiles * Shape::BM + group * 64, n0 = tile % n_tiles * BN;
            for (u32 half = 0; half < own; half += 4) {
                float level0[ACC], level1[ACC];
                accumulate();
                if (own > 1) {
                    keep(level0, acc);
                    accumulate();
                    add_to(acc, level0);
                }
                if (own > 2) {
                    keep(level1, acc);
                    accumulate();
                    keep(level0, acc);
                    accumulate();
                    add_to(acc, level0);
                    add_to(acc, level1);
                }
                if (own > 4) {
#pragma unroll
                    for (int i = 0; i < ACC; ++i)
                        if (half == 0)
                            own_tree[i * 128 + tid] = acc[i];
                        else
                            acc[i] = __fadd_rn(own_tree[i * 128 + tid], acc[i]);
                }
            }
            u32 row = m0 + warp * 16 + (lane >> 2), column = n0 + 2 * (lane & 3);
            if (blocks > 1) {
                // Upper levels: every block's subtree meets in distributed shared memory.
#pragma unroll
                for (int i = 0; i < ACC; ++i) own_tree[i * 128 + tid] = acc[i];
                cluster_sync();
                u32 slice = BN / 8 / blocks;
                for (u32 j = rank * slice; j < (rank + 1) * slice; ++j)
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        float p[8];
#pragma unroll
                        for (u32 b = 0; b < 8; ++b)
                            if (b < blocks) p[b] = load_cluster(shared_address(own_tree + (4 * j + i) * 128 + tid), b);
                        u32 m = row + (i >> 1) * 8, n = column + 8 * j + (i & 1);
                        float y = tree_sum(p, 1, blocks);
                        if (m < M && n < N) Y[(u64)n * ldy + m] = f32_to_bf16(y);
                    }
                cluster_sync();
            } else {
                // Transposed through shared memory: rows of 64 outputs a token, 16-byte pieces swizzled.
                u32 base = shared_address(own_tree);
                named_barrier(1 + group, 128);
#pragma unroll
                for (int j = 0; j < BN / 8; j += 2) {
                    u32 token = 8 * (j + (BN > 8 ? lane >> 4 : 0)) + (lane & 7), piece = 2 * warp + ((lane >> 3) & 1);
                    u32 address = base + token * 128 + ((piece ^ (token & 7)) << 4);
                    constexpr int LAST = ACC - 4;
                    int q = 4 * j + 4 > LAST ? LAST : 4 * j + 4;
                    store_matrices_transposed(address, f32x2_to_bf16x2(acc[4 * j], acc[4 * j + 1]),
                                              f32x2_to_bf16x2(acc[4 * j + 2], acc[4 * j + 3]),
                                              f32x2_to_bf16x2(acc[q], acc[q + 1]),
                                              f32x2_to_bf16x2(acc[q + 2], acc[q + 3]));
                }
                named_barrier(1 + group, 128);
                for (u32 e = tid; e < BN * 8; e += 128) {
                    u32 token = e >> 3, piece = e & 7, m = m0 + piece * 8, n = n0 + token;
                    if (n < N && m < M) {
                        uint4 v = *(const uint4 *)((const u8 *)own_tree + token * 128 + ((piece ^ (token & 7)) << 4));
                        *(uint4 *)(Y + (u64)n * ldy + m) = v;
                    }
                }
                named_barrier(1 + group, 128);
            }
        }
    }
}

#define GEMM_TILE(BN, GROUPS, STAGES, BLOCKS)                                                                 \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + (GROUPS > 1 ? 128 : 32), BLOCKS) gemm_tile_invariant_n##BN##_bf16(  \
        const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x, u16 *Y, u32 M, u32 N,  \
        u32 K, u32 ldy, u32 segments) {                                                                       \
        gemm_tile<BN, GROUPS, STAGES>(map_w, map_x, Y, M, N, K, ldy, segments);                               \
    }
GEMM_TILE(8, 1, 8, 2)
GEMM_TILE(16, 1, 8, 2)
GEMM_TILE(32, 1, 7, 2)
GEMM_TILE(64, 1, 5, 2)
GEMM_TILE(128, 2, 5, 1)

#endif
