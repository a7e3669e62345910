// attention_core.cu: softmax attention over the paged cache, by absolute blocks of 256 keys.
//
// Purpose:    region `attention_core`: `attention_rows` for several rows of a sequence, `attention_split` for
//             one row a sequence with the blocks of its past spread over the device (`deep`: all of a block's keys
//             and values asked for at once, for steps with fewer blocks than the device has room for),
//             `attention_serial` for FP32 caches and head sizes that the matrix units do not take; under `fast`
//             `attention_rows_fast` for several rows where there are warpgroups, `attention_walk_fast` for one row
//             of up to 8 query heads a kv head. All of them gate their output where they are given a gate (region
//             `attention_output_gate`, the same roundings), and write ln Σ exp(score) where it is asked for.
// Grid:       attention_rows: x = groups of 64 (row, head) items, y = kv heads, z = spans; attention_split:
//             x = blocks of keys, y = kv heads, z = spans; attention_serial: x = heads, y = rows;
//             attention_rows_fast: x = kv heads, y = groups of 128 items, z = spans; attention_walk_fast:
//             x = shares of the keys, y = kv heads, z = spans.
// Shapes:     q and out [rows][ld]; a page holds [kv_head][256][head_dim] of keys, then of values, per layer;
//             log_sums [rows][heads] FP32, natural logarithm, or none.
// Accumulator: FP32 of the matrix instruction (mma.sync); queries are its M side, keys and values its N side
//             (attention_walk_fast: the other way round).
// Order:      a score is one chain over ascending 16s of head_dim, times the scale. In a block: the exact
//             maximum m; probabilities exp(score − m), rounded to BF16 for the product with values, one chain
//             over ascending 16s of keys; their sum l unrounded: keys (k / 16) mod 4 = s form part s, ascending
//             in each of four lanes, lanes by exchange 1, 2, parts (0 + 1) + (2 + 3). Blocks merge in ascending
//             order by one formula (`merge`). attention_rows_fast: one running maximum over ascending tiles of keys;
//             attention_walk_fast: pieces of 16 keys dealt to warps, a maximum that follows when a score passes it
//             by 2^8, warps and then blocks merged in ascending order; exponentials of both by the special-function
//             unit; the same bits from run to run, not of another cut.
// Invariance: would break if a block were cut, if blocks merged in order of arrival, or if the two kernels
//             summed a block in different orders; keys after a row's own position count as exactly nothing.
// Reference:  backend/cpu/attention_core.rs (the same blocks and merge, another order inside a block), FP64.
// Gate:       attention-core-invariance, core-reference-attention

struct Cache {
    u64 slot;  // byte offset of the layer's keys in a page
    u32 kv_heads, group;  // query heads a kv head
    float scale;
    u32 unused;
    DEVICE u32 heads() const { return kv_heads * group; }
};

// Rows of the output gate, or none; a head's gate begins `stride` elements after the one before it.
template <typename T> struct Gate {
    const T *rows;
    u32 pitch, stride;
    DEVICE float apply(float x, u32 row, u32 head, u32 d) const {
        return rows ? rounded<T>(x) * sigmoid(widen(rows[(u64)row * pitch + head * stride + d])) : x;
    }
};

DEVICE u32 output_pair(float x, float y, const Gate<u16> &gate, u32 row, u32 head, u32 d) {
    if (gate.rows) {
        u32 g = *(const u32 *)(gate.rows + (u64)row * gate.pitch + head * gate.stride + d);
        x = rounded<u16>(x) * sigmoid(bf16_low(g)), y = rounded<u16>(y) * sigmoid(bf16_high(g));
    }
    return f32x2_to_bf16x2(x, y);
}

DEVICE void load_matrices_transposed(u32 (&d)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

// ln Σ exp(score) of a row and head, [row][head], where it is asked for. Nothing else reads it.
struct LogSums {
    float *to;
    u32 heads;
    DEVICE void put(u32 row, u32 head, double m, float l) const {
        if (to) to[(u64)row * heads + head] = (float)(m + ln64((double)l));
    }
};

// The running result (m, l, acc) takes in a later block's.
DEVICE void merge_scales(float &m, float block_m, float &a, float &b) {
    float joint = block_m > m ? block_m : m;
    a = exp_fixed(m - joint);
    b = exp_fixed(block_m - joint);
    m = joint;
}
DEVICE float merge(float running, float a, float block, float b) { return running * a + block * b; }

// Address of 16-byte piece `piece` of row `row` of a tile whose rows have `pieces` pieces; rows of a
// matrix instruction's operand fall into different banks.
template <int PIECES> DEVICE u32 piece_of(u32 row, u32 piece) {
    constexpr u32 MASK = PIECES % 8 == 0 ? 7 : PIECES % 4 == 0 ? 3 : PIECES % 2 == 0 ? 1 : 0;
    return (row * PIECES + (piece ^ (row & MASK))) * 16;
}

// One block of 256 keys for MT × 16 items; warp (mi, part): items 16·mi …, of every 64 keys the
// 16-key slices part·4/PARTS …, of the output the columns part·D/PARTS ….
template <int D, int MT, int PARTS, int STAGES> struct AttentionTile {
    static constexpr int CHUNKS = 4, THREADS = 32 * MT * PARTS, PIECES = D / 8, SLICES = 4 / PARTS, COLUMNS = D / PARTS;
    static constexpr int NT = COLUMNS / 8, STEPS = D / 16;
    static constexpr u32 Q_BYTES = MT * 16 * D * 2, STAGE_BYTES = 64 * D * 2, P_BYTES = MT * 16 * 256 * 2;
    static constexpr u32 STATS_BYTES = 2 * MT * 16 * 4 * 4;
    static_assert(COLUMNS % 8 == 0, "columns of a part are whole tiles");

    u32 q_tile, ring, p_tile;
    float *stats;  // [2][4][MT·16]: maxima of parts, sums of parts
    u32 lane, warp, mi, part, g, t;

    DEVICE AttentionTile(u8 *memory) {
        q_tile = shared_address(memory);
        ring = q_tile + Q_BYTES;
        p_tile = ring + STAGES * STAGE_BYTES;
        stats = (float *)(memory + Q_BYTES + STAGES * STAGE_BYTES + P_BYTES);
        lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        mi = warp % MT, part = warp / MT, g = lane >> 2, t = lane & 3;
    }

    // Keys (chunk < CHUNKS) or values of 64 positions; positions from `end` on are zeros.
    DEVICE void fetch(u32 slot, const u8 *keys, u64 values_offset, u32 chunk, u32 block_start, u32 end) {
        const u8 *base = keys + (chunk < CHUNKS ? 0 : values_offset);
        u32 first = chunk % CHUNKS * 64;
        for (u32 e = threadIdx.x; e < 64 * PIECES; e += THREADS) {
            u32 row = e / PIECES, piece = e % PIECES;
            copy_async(ring + slot * STAGE_BYTES + piece_of<PIECES>(row, piece),
                       base + ((u64)(first + row) * PIECES + piece) * 16, block_start + first + row < end);
        }
    }

    // acc[NT][4], m and l of rows g and g + 8 of this warp's items. `limit[i]`: keys that row may see.
    DEVICE void block(const u8 *keys, u64 values_offset, u32 block_start, u32 end, const u32 (&limit)[2], float scale,
                      float (&acc)[NT][4], float (&m)[2], float (&l)[2]) {
        __syncthreads();
#pragma unroll
        for (int s = 0; s < STAGES - 1; ++s) {
            fetch(s, keys, values_offset, s, block_start, end);
            copy_async_commit();
        }
        float score[CHUNKS][SLICES][2][4];
        float top[2] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            next_stage(chunk, keys, values_offset, block_start, end);
            u32 tile = ring + (chunk % STAGES) * STAGE_BYTES;
#pragma unroll
            for (int s = 0; s < SLICES; ++s)
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int i = 0; i < 4; ++i) score[chunk][s][h][i] = 0.0f;
#pragma unroll 4
            for (int k = 0; k < STEPS; ++k) {
                u32 a[4];
                load_matrices(a, q_tile + piece_of<PIECES>(mi * 16 + (lane & 15), 2 * k + (lane >> 4)));
#pragma unroll
                for (int s = 0; s < SLICES; ++s) {
                    u32 row = (part * SLICES + s) * 16 + (lane & 7) + ((lane >> 4) << 3), b[4];
                    load_matrices(b, tile + piece_of<PIECES>(row, 2 * k + ((lane >> 3) & 1)));
                    u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                    mma_m16n8k16(score[chunk][s][0], a, low);
                    mma_m16n8k16(score[chunk][s][1], a, high);
                }
            }
#pragma unroll
            for (int s = 0; s < SLICES; ++s)
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        u32 key = block_start + chunk * 64 + (part * SLICES + s) * 16 + h * 8 + 2 * t + (i & 1);
                        float x = score[chunk][s][h][i] * scale;
                        x = key < limit[i >> 1] ? x : __uint_as_float(0xff800000u);
                        score[chunk][s][h][i] = x;
                        top[i >> 1] = fmaxf(top[i >> 1], x);
                    }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
            top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
            if (PARTS > 1 && t == 0) stats[part * MT * 16 + mi * 16 + g + 8 * r] = top[r];
        }
        if (PARTS > 1) {
            __syncthreads();
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int p = 0; p < PARTS; ++p) top[r] = fmaxf(top[r], stats[p * MT * 16 + mi * 16 + g + 8 * r]);
        }
        float *sums = stats + 4 * MT * 16;
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            float sum[2] = {0.0f, 0.0f};
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float *x = score[chunk][s][h];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        // A row that sees no key of the block has no maximum; its result is not used.
                        x[i] = x[i] == __uint_as_float(0xff800000u) ? 0.0f : exp_fixed(x[i] - top[i >> 1]);
                        sum[i >> 1] = __fadd_rn(sum[i >> 1], x[i]);
                    }
                    u32 key = chunk * 64 + (part * SLICES + s) * 16 + h * 8 + 2 * t, row = mi * 16 + g;
                    u32 to = p_tile + (key & 7) * 2;
                    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + piece_of<32>(row, key >> 3)),
                                 "r"(f32x2_to_bf16x2(x[0], x[1])) : "memory");
                    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + piece_of<32>(row + 8, key >> 3)),
                                 "r"(f32x2_to_bf16x2(x[2], x[3])) : "memory");
                }
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                sum[r] = __fadd_rn(sum[r], __shfl_xor_sync(~0u, sum[r], 1));
                sum[r] = __fadd_rn(sum[r], __shfl_xor_sync(~0u, sum[r], 2));
                if (t == 0) sums[(part * SLICES + s) * MT * 16 + mi * 16 + g + 8 * r] = sum[r];
            }
        }
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
#pragma unroll 1
        for (int chunk = CHUNKS; chunk < 2 * CHUNKS; ++chunk) {
            next_stage(chunk, keys, values_offset, block_start, end);
            u32 tile = ring + (chunk % STAGES) * STAGE_BYTES;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                u32 a[4];
                load_matrices(a, p_tile + piece_of<32>(mi * 16 + (lane & 15), ((chunk - CHUNKS) * 4 + k) * 2 + (lane >> 4)));
                u32 row = k * 16 + (lane & 15);
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                    u32 piece = part * NT + n + (lane >> 4), b[4];
                    if (n + 1 == NT) piece = part * NT + n;
                    load_matrices_transposed(b, tile + piece_of<PIECES>(row, piece));
                    u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                    mma_m16n8k16(acc[n], a, low);
                    if (n + 1 < NT) mma_m16n8k16(acc[n + 1 < NT ? n + 1 : n], a, high);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float *p = sums + mi * 16 + g + 8 * r;
            m[r] = top[r];
            l[r] = __fadd_rn(__fadd_rn(p[0], p[MT * 16]), __fadd_rn(p[2 * MT * 16], p[3 * MT * 16]));
        }
    }

    // Stage `chunk` has arrived for everybody, and a later one is on its way.
    DEVICE void next_stage(int chunk, const u8 *keys, u64 values_offset, u32 block_start, u32 end) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        int next = chunk + STAGES - 1;
        if (next < 2 * CHUNKS) fetch(next % STAGES, keys, values_offset, next, block_start, end);
        copy_async_commit();
    }
};

// Items of a span and kv head: (row, head in group), heads fastest.
template <int D, int MT, int PARTS, int STAGES>
DEVICE void attention_rows(const Step &step, const u16 *q, u32 ldq, u16 *out, u32 ldo, const Cache &cache,
                           const Gate<u16> &gate, const LogSums &log_sums) {
    using Tile = AttentionTile<D, MT, PARTS, STAGES>;
    extern __shared__ __align__(128) u8 memory[];
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    u32 items = span.rows * cache.group, first = blockIdx.x * MT * 16;
    if (span.rows < 2 || first >= items) return;
    Tile tile(memory);
    u32 kv_head = blockIdx.y;
    for (u32 e = threadIdx.x; e < MT * 16 * Tile::PIECES; e += Tile::THREADS) {
        u32 i = e / Tile::PIECES, piece = e % Tile::PIECES, item = min(first + i, items - 1);
        const u16 *row = q + (u64)(span.first_row + item / cache.group) * ldq +
                         (kv_head * cache.group + item % cache.group) * D;
        copy_async(tile.q_tile + piece_of<Tile::PIECES>(i, piece), row + piece * 8, true);
    }
    copy_async_commit();
    copy_async_wait<0>();

    u32 item[2], limit[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        item[r] = first + tile.mi * 16 + tile.g + 8 * r;
        limit[r] = span.position + min(item[r], items - 1) / cache.group + 1;
    }
    u32 last = min(first + MT * 16, items) - 1, end = span.position + last / cache.group + 1;
    float acc[Tile::NT][4], m[2], l[2];
    u64 kv_bytes = (u64)256 * D * 2, values_offset = kv_bytes * cache.kv_heads;
#pragma unroll 1
    for (u32 b = 0; b * 256 < end; ++b) {
        const u8 *keys = (const u8 *)(step.pages[span.pages + b] + cache.slot + kv_head * kv_bytes);
        float block_acc[Tile::NT][4], block_m[2], block_l[2];
        tile.block(keys, values_offset, b * 256, end, limit, cache.scale, block_acc, block_m, block_l);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (b == 0) {
                m[r] = block_m[r], l[r] = block_l[r];
#pragma unroll
                for (int n = 0; n < Tile::NT; ++n)
                    acc[n][2 * r] = block_acc[n][2 * r], acc[n][2 * r + 1] = block_acc[n][2 * r + 1];
            } else if (b * 256 < limit[r]) {
                float x, y;
                merge_scales(m[r], block_m[r], x, y);
                l[r] = merge(l[r], x, block_l[r], y);
#pragma unroll
                for (int n = 0; n < Tile::NT; ++n)
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; ++i) acc[n][i] = merge(acc[n][i], x, block_acc[n][i], y);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (item[r] >= items) continue;
        u32 row = span.first_row + item[r] / cache.group, head = kv_head * cache.group + item[r] % cache.group;
        u16 *o = out + (u64)row * ldo + head * D;
#pragma unroll
        for (int n = 0; n < Tile::NT; ++n) {
            u32 d = tile.part * Tile::COLUMNS + 8 * n + 2 * tile.t;
            *(u32 *)(o + d) = output_pair(acc[n][2 * r] / l[r], acc[n][2 * r + 1] / l[r], gate, row, head, d);
        }
        if (tile.part == 0 && tile.t == 0) log_sums.put(row, head, m[r], l[r]);
    }
}

// Blocks whose scales are made together when results are merged.
constexpr u32 MERGED = 64;

// One row: block b of its past into `partial`, [span][head][blocks][D] and behind all of them (m, l)
// [span][head][blocks]; the block that arrives last merges all of them, in ascending order.
template <int D, int STAGES>
DEVICE void attention_split(const Step &step, const u16 *q, u32 ldq, u16 *out, u32 ldo, const Cache &cache,
                            const Gate<u16> &gate, const LogSums &log_sums, float *partial, u32 blocks_max, u32 *arrived) {
    constexpr int MT = 1, PARTS = D % 32 == 0 ? 4 : 2;
    using Tile = AttentionTile<D, MT, PARTS, STAGES>;
    constexpr u32 KEYS = 256;
    static_assert(STAGES * Tile::STAGE_BYTES + Tile::P_BYTES >= 16 * MERGED * 3 * 4, "scales of 16 heads fit");
    extern __shared__ __align__(128) u8 memory[];
    __shared__ u32 ticket;
    __shared__ float largest[16];  // maxima of the heads that merge
    begin_kernel();
    u32 b = blockIdx.x, kv_head = blockIdx.y, which = blockIdx.z;
    SpanInfo span = step.spans[which];
    u32 row = span.first_row, end = span.position + 1, blocks = (end + KEYS - 1) / KEYS;
    if (span.rows != 1 || b >= blocks) return;
    Tile tile(memory);
    u64 kv_bytes = (u64)256 * D * 2, values_offset = kv_bytes * cache.kv_heads;
    const u8 *keys = (const u8 *)(step.pages[span.pages + b] + cache.slot + kv_head * kv_bytes);
    u32 heads = cache.kv_heads * cache.group;
    float2 *stats = (float2 *)(partial + (u64)gridDim.z * heads * blocks_max * D);
    // More query heads than rows of a tile take turns.
    for (u32 first = 0; first < cache.group; first += 16) {
        __syncthreads();
        for (u32 e = threadIdx.x; e < 16 * Tile::PIECES; e += Tile::THREADS) {
            u32 i = e / Tile::PIECES, piece = e % Tile::PIECES, item = min(first + i, cache.group - 1);
            copy_async(tile.q_tile + piece_of<Tile::PIECES>(i, piece),
                       q + (u64)row * ldq + (kv_head * cache.group + item) * D + piece * 8, true);
        }
        copy_async_commit();
        float acc[Tile::NT][4], m[2], l[2];
        u32 limit[2] = {end, end};
        tile.block(keys, values_offset, b * KEYS, end, limit, cache.scale, acc, m, l);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            u32 item = first + tile.g + 8 * r;
            if (item >= cache.group) continue;
            u32 head = kv_head * cache.group + item, column = tile.part * Tile::COLUMNS + 2 * tile.t;
            if (blocks == 1) {
                u16 *o = out + (u64)row * ldo + head * D + column;
#pragma unroll
                for (int n = 0; n < Tile::NT; ++n)
                    *(u32 *)(o + 8 * n) =
                        output_pair(acc[n][2 * r] / l[r], acc[n][2 * r + 1] / l[r], gate, row, head, column + 8 * n);
                if (tile.part == 0 && tile.t == 0) log_sums.put(row, head, m[r], l[r]);
                continue;
            }
            u64 place = ((u64)which * heads + head) * blocks_max + b;
            float *p = partial + place * D + column;
#pragma unroll
            for (int n = 0; n < Tile::NT; ++n) *(float2 *)(p + 8 * n) = make_float2(acc[n][2 * r], acc[n][2 * r + 1]);
            if (tile.part == 0 && tile.t == 0) stats[place] = make_float2(m[r], l[r]);
        }
    }
    if (blocks == 1) return;
    __threadfence();
    __syncthreads();
    u32 *counter = arrived + which * cache.kv_heads + kv_head;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    if (ticket != blocks - 1) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;

    // The scales of all merges depend on maxima alone and are made side by side; what is left of a
    // merge is one chain of products and sums a column. Four columns of a head a thread.
    constexpr u32 QUADS = D / 4, ROUNDS = (16 * QUADS + Tile::THREADS - 1) / Tile::THREADS;
    float *scales = (float *)(memory + Tile::Q_BYTES);  // [head of 16][running, block, block · l][64]
    u32 warps = Tile::THREADS / 32;
    for (u32 first = 0; first < cache.group; first += 16) {
        u32 count = min(cache.group - first, 16u);
        u64 start = ((u64)which * heads + kv_head * cache.group + first) * blocks_max;
        float4 sum[ROUNDS];
        float l[ROUNDS];
        for (u32 chunk = 0; chunk < blocks; chunk += MERGED) {
            u32 length = min(blocks - chunk, MERGED);
            __syncthreads();
            for (u32 h = tile.warp; h < count; h += warps) {
                const float2 *stat = stats + start + (u64)h * blocks_max;
                float *to = scales + h * 3 * MERGED;
                // The largest maximum before the chunk.
                float before = __uint_as_float(0xff800000u);
                for (u32 i = tile.lane; i < chunk; i += 32) before = fmaxf(before, __ldcg(stat + i).x);
#pragma unroll
                for (int offset = 16; offset > 0; offset >>= 1)
                    before = fmaxf(before, __shfl_xor_sync(~0u, before, offset));
#pragma unroll
                for (u32 half = 0; half < MERGED; half += 32) {
                    u32 i = half + tile.lane;
                    float2 own = make_float2(__uint_as_float(0xff800000u), 0.0f);
                    if (i < length) own = __ldcg(stat + chunk + i);
                    float joint = fmaxf(before, own.x);
#pragma unroll
                    for (int offset = 1; offset < 32; offset <<= 1) {
                        float other = __shfl_up_sync(~0u, joint, offset);
                        if (tile.lane >= offset) joint = fmaxf(joint, other);
                    }
                    float previous = __shfl_up_sync(~0u, joint, 1);
                    if (tile.lane == 0) previous = before;
                    if (i < length) {
                        float c = exp_fixed(own.x - joint);
                        to[i] = exp_fixed(previous - joint), to[MERGED + i] = c, to[2 * MERGED + i] = own.y * c;
                    }
                    before = __shfl_sync(~0u, joint, 31);
                }
                if (tile.lane == 0) largest[h] = before;
            }
            __syncthreads();
#pragma unroll
            for (u32 round = 0; round < ROUNDS; ++round) {
                u32 item = threadIdx.x + round * Tile::THREADS, h = item / QUADS;
                if (h >= count) continue;
                const float *p = partial + (start + (u64)h * blocks_max + chunk) * D + item % QUADS * 4;
                const float *scale = scales + h * 3 * MERGED;
                u32 i = 0;
                if (chunk == 0) {
                    sum[round] = __ldcg((const float4 *)p);
                    l[round] = __ldcg(stats + start + (u64)h * blocks_max).y;
                    i = 1;
                }
#pragma unroll 8
                for (; i < length; ++i) {
                    float4 y = __ldcg((const float4 *)(p + (u64)i * D));
                    float a = scale[i], c = scale[MERGED + i];
                    l[round] = l[round] * a + scale[2 * MERGED + i];
                    sum[round].x = merge(sum[round].x, a, y.x, c), sum[round].y = merge(sum[round].y, a, y.y, c);
                    sum[round].z = merge(sum[round].z, a, y.z, c), sum[round].w = merge(sum[round].w, a, y.w, c);
                }
            }
        }
#pragma unroll
        for (u32 round = 0; round < ROUNDS; ++round) {
            u32 item = threadIdx.x + round * Tile::THREADS, h = item / QUADS, d = item % QUADS * 4;
            if (h >= count) continue;
            u32 head = kv_head * cache.group + first + h;
            float4 y = sum[round];
            *(uint2 *)(out + (u64)row * ldo + head * D + d) =
                make_uint2(output_pair(y.x / l[round], y.y / l[round], gate, row, head, d),
                           output_pair(y.z / l[round], y.w / l[round], gate, row, head, d + 2));
            if (d == 0) log_sums.put(row, head, largest[h], l[round]);
        }
    }
}

#define ATTENTION_ROWS(D, STAGES, BLOCKS)                                                                     \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) attention_rows_invariant_d##D(                  \
        Step step, const u16 *q, u32 ldq, u16 *out, u32 ldo, Cache cache, const u16 *gate, u32 ldg, u32 gate_stride, \
        float *log_sums) { \
        attention_rows<D, 4, 2, STAGES>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},              \
            {log_sums, cache.heads()});                                                                       \
    }
ATTENTION_ROWS(16, 4, 1)
ATTENTION_ROWS(48, 4, 1)
ATTENTION_ROWS(64, 4, 2)
ATTENTION_ROWS(128, 3, 2)
ATTENTION_ROWS(256, 3, 1)

#define ATTENTION_SPLIT(D, STAGES)                                                                            \
    extern "C" __global__ void __launch_bounds__(D % 32 == 0 ? 128 : 64) attention_split_invariant_d##D(      \
        Step step, const u16 *q, u32 ldq, u16 *out, u32 ldo, Cache cache, const u16 *gate, u32 ldg, u32 gate_stride, \
        float *log_sums, float *partial, u32 blocks_max, u32 *arrived) {                                      \
        attention_split<D, STAGES>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},                   \
            {log_sums, cache.heads()}, partial, blocks_max, arrived);                                         \
    }
ATTENTION_SPLIT(16, 4)
ATTENTION_SPLIT(48, 4)
ATTENTION_SPLIT(64, 4)
ATTENTION_SPLIT(128, 4)
ATTENTION_SPLIT(256, 3)

#define ATTENTION_SPLIT_DEEP(D, STAGES)                                                                       \
    extern "C" __global__ void __launch_bounds__(128) attention_split_deep_invariant_d##D(                    \
        Step step, const u16 *q, u32 ldq, u16 *out, u32 ldo, Cache cache, const u16 *gate, u32 ldg, u32 gate_stride, \
        float *log_sums, float *partial, u32 blocks_max, u32 *arrived) {                                      \
        attention_split<D, STAGES>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},                   \
            {log_sums, cache.heads()}, partial, blocks_max, arrived);                                         \
    }
ATTENTION_SPLIT_DEEP(64, 9)
ATTENTION_SPLIT_DEEP(128, 9)
ATTENTION_SPLIT_DEEP(256, 6)

// ---- one row under `fast`: warps walk the keys by themselves ---------------------------------------

DEVICE float exp2_quick(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The 8×8 matrix of 16-bit elements that a warp holds, a row a quad, transposed.
DEVICE u32 transpose_matrix(u32 x) {
    u32 y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Up to 8 query heads of one kv head. Keys are the M side of the matrix instruction and queries its N side, so
// that 16 keys are one instruction a step, and the probabilities of 16 keys, transposed in registers, the operand
// of the product with values.
template <int D, int WARPS, int STAGES> struct Walk {
    static constexpr u32 PIECES = D / 8, HALF = 16 * D * 2, STAGE = 2 * HALF, PITCH = D + 4, THREADS = 32 * WARPS;
    static constexpr u32 RING = WARPS * STAGES * STAGE, MERGED = WARPS * 8 * PITCH * 4;
    static_assert(MERGED <= RING, "what warps found fits where their keys were");
};

// Four columns of a head after all its keys: sums of values, the maximum (base 2) and the sum of the weights.
DEVICE void finish_walk(u16 *out, u32 ldo, const Gate<u16> &gate, const LogSums &log_sums, u32 row, u32 head, u32 D, u32 d,
                        float4 y, float m, float l) {
    float inverse = 1.0f / l;
    if (d == 0) log_sums.put(row, head, (double)m * 0.6931471805599453, l);
    *(uint2 *)(out + (u64)row * ldo + head * D + d) =
        make_uint2(output_pair(y.x * inverse, y.y * inverse, gate, row, head, d),
                   output_pair(y.z * inverse, y.w * inverse, gate, row, head, d + 2));
}

// Keys in pieces of 16; `splits` blocks at most share them, each at least `least` pieces, one range a block and
// every WARPS-th piece of it a warp. Partial results [span][head][splits][D], behind all of them (m, l).
template <int D, int WARPS, int STAGES>
DEVICE void attention_walk(const Step &step, const u16 *q, u32 ldq, u16 *out, u32 ldo, const Cache &cache,
                           const Gate<u16> &gate, const LogSums &log_sums, float *partial,
                           u32 splits, u32 least, u32 *arrived) {
    using W = Walk<D, WARPS, STAGES>;
    constexpr int STEPS = D / 16;
    constexpr u32 QUADS = D / 4, AHEAD = STAGES - 1;
    extern __shared__ __align__(128) u8 memory[];
    __shared__ float tops[WARPS][8], sums[WARPS][8];
    __shared__ u32 ticket;
    allow_next_kernel();
    u32 b = blockIdx.x, kv_head = blockIdx.y, which = blockIdx.z;
    SpanInfo span = step.spans[which];
    u32 row = span.first_row, end = span.position + 1, pieces = (end + 15) / 16;
    u32 used = min(splits, (pieces + least - 1) / least);
    if (span.rows != 1 || b >= used) {
        wait_for_previous_kernel();
        return;
    }
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    u32 mine = (u32)((u64)pieces * b / used) + warp, last = (u32)((u64)pieces * (b + 1) / used), newest = pieces - 1;
    u32 ring = shared_address(memory) + warp * STAGES * W::STAGE;
    u64 kv_bytes = (u64)256 * D * 2, values = kv_bytes * cache.kv_heads, own = cache.slot + kv_head * kv_bytes + lane * 16;
    const u64 *pages = step.pages + span.pages;

    auto fetch = [&](u32 slot, u32 piece) {
        const u8 *from = (const u8 *)(pages[piece / 16] + own) + piece % 16 * W::HALF;
        u32 to = ring + slot * W::STAGE;
#pragma unroll
        for (u32 i = 0; i < W::HALF / 512; ++i) {
            u32 e = lane + 32 * i, r = e / W::PIECES, place = piece_of<W::PIECES>(r, e % W::PIECES);
            bool present = piece * 16 + r < end;
            copy_async(to + place, from + i * 512, present);
            copy_async(to + W::HALF + place, from + values + i * 512, present);
        }
    };
    // All keys but the newest were written before this step.
    u32 next = mine;
#pragma unroll
    for (u32 s = 0; s < AHEAD; ++s, next += WARPS) {
        if (next < last && next != newest) fetch(s, next);
        copy_async_commit();
    }
    wait_for_previous_kernel();
    if (newest >= mine && newest < last && (newest - mine) % WARPS == 0 && (newest - mine) / WARPS < AHEAD) {
        fetch((newest - mine) / WARPS, newest);
        copy_async_commit();
    }
    u32 query[STEPS][2];
    const u16 *rows = q + (u64)row * ldq + (kv_head * cache.group + g) * D + 2 * t;
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
#pragma unroll
        for (int h = 0; h < 2; ++h) query[k][h] = g < cache.group ? *(const u32 *)(rows + 16 * k + 8 * h) : 0;

    float scale = cache.scale * 1.44269504088896340736f;
    float m[2] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u)}, l[2] = {0.0f, 0.0f}, acc[STEPS][4];
#pragma unroll
    for (int n = 0; n < STEPS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
    u32 slot = 0;
#pragma unroll 1
    for (u32 piece = mine; piece < last; piece += WARPS) {
        if (piece == newest)
            copy_async_wait<0>();
        else
            copy_async_wait<STAGES - 2>();
        __syncwarp();
        if (next < last) fetch(slot == 0 ? AHEAD : slot - 1, next);
        copy_async_commit();
        next += WARPS;
        u32 keys_at = ring + slot * W::STAGE, values_at = keys_at + W::HALF;
        slot = slot == AHEAD ? 0 : slot + 1;

        float x[4], half[2][4];
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 4; ++i) half[h][i] = 0.0f;
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            u32 a[4];
            load_matrices(a, keys_at + piece_of<W::PIECES>(lane & 15, 2 * k + (lane >> 4)));
            mma_m16n8k16(half[k & 1], a, query[k]);
        }
        bool over = false;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = (half[0][i] + half[1][i]) * scale;
            if (piece == newest && piece * 16 + g + 8 * (i >> 1) >= end) x[i] = __uint_as_float(0xff800000u);
            over |= x[i] > m[i & 1] + 8.0f;
        }
        // The maximum follows when a score passes it by 2^8.
        if (__any_sync(~0u, over)) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float top = fmaxf(m[r], fmaxf(x[r], x[r + 2]));
#pragma unroll
                for (int offset = 4; offset < 32; offset <<= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
                float older = exp2_quick(m[r] - top);
                m[r] = top;
                l[r] *= older;
#pragma unroll
                for (int n = 0; n < STEPS; ++n) acc[n][r] *= older, acc[n][r + 2] *= older;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = exp2_quick(x[i] - m[i & 1]);
            l[i & 1] += x[i];
        }
        u32 p[2] = {transpose_matrix(f32x2_to_bf16x2(x[0], x[1])), transpose_matrix(f32x2_to_bf16x2(x[2], x[3]))};
#pragma unroll
        for (int n = 0; n < STEPS; ++n) {
            u32 a[4];
            load_matrices_transposed(
                a, values_at + piece_of<W::PIECES>((lane & 7) + ((lane >> 4) << 3), 2 * n + ((lane >> 3) & 1)));
            mma_m16n8k16(acc[n], a, p);
        }
    }
    copy_async_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int offset = 4; offset < 32; offset <<= 1) l[r] += __shfl_xor_sync(~0u, l[r], offset);
    __syncthreads();

    // Warps merge in ascending order; then blocks, by the one that arrives last.
    float *found = (float *)memory;
    u32 heads = cache.kv_heads * cache.group;
    u64 place = ((u64)which * heads + kv_head * cache.group) * splits;
    float2 *stats = (float2 *)(partial + (u64)gridDim.z * heads * splits * D);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        u32 h = 2 * t + r;
        if (g == 0) tops[warp][h] = m[r], sums[warp][h] = l[r];
        if (h < cache.group)
#pragma unroll
            for (int n = 0; n < STEPS; ++n) {
                float *to = found + (warp * 8 + h) * W::PITCH + 16 * n + g;
                to[0] = acc[n][r], to[8] = acc[n][r + 2];
            }
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < cache.group * QUADS; e += W::THREADS) {
        u32 h = e / QUADS, d = e % QUADS * 4;
        float top = tops[0][h], total = 0.0f;
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 1; w < WARPS; ++w) top = fmaxf(top, tops[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            float c = exp2_quick(tops[w][h] - top);
            float4 z = *(const float4 *)(found + (w * 8 + h) * W::PITCH + d);
            total += c * sums[w][h];
            y.x += c * z.x, y.y += c * z.y, y.z += c * z.z, y.w += c * z.w;
        }
        if (used == 1) {
            finish_walk(out, ldo, gate, log_sums, row, kv_head * cache.group + h, D, d, y, top, total);
        } else {
            u64 at = place + (u64)h * splits + b;
            *(float4 *)(partial + at * D + d) = y;
            if (d == 0) stats[at] = make_float2(top, total);
        }
    }
    if (used == 1) return;
    __threadfence();
    __syncthreads();
    u32 *counter = arrived + which * cache.kv_heads + kv_head;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    if (ticket != used - 1) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;
    float *scales = (float *)memory;  // [head][splits]
    for (u32 h = warp; h < cache.group; h += WARPS) {
        const float2 *stat = stats + place + (u64)h * splits;
        float top = __uint_as_float(0xff800000u), total = 0.0f;
        for (u32 i = lane; i < used; i += 32) top = fmaxf(top, __ldcg(stat + i).x);
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
        for (u32 i = lane; i < used; i += 32) {
            float2 s = __ldcg(stat + i);
            float c = exp2_quick(s.x - top);
            scales[h * splits + i] = c;
            total += c * s.y;
        }
        total = warp_sum(total);
        if (lane == 0) tops[0][h] = top, sums[0][h] = total;
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < cache.group * QUADS; e += W::THREADS) {
        u32 h = e / QUADS, d = e % QUADS * 4;
        const float *p = partial + (place + (u64)h * splits) * D + d, *c = scales + h * splits;
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (u32 first = 0; first < used; first += 8) {
            float4 z[8];
#pragma unroll
            for (u32 i = 0; i < 8; ++i) z[i] = __ldcg((const float4 *)(p + (u64)min(first + i, used - 1) * D));
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                float w = first + i < used ? c[first + i] : 0.0f;
                y.x += w * z[i].x, y.y += w * z[i].y, y.z += w * z[i].z, y.w += w * z[i].w;
            }
        }
        finish_walk(out, ldo, gate, log_sums, row, kv_head * cache.group + h, D, d, y, tops[0][h], sums[0][h]);
    }
}

#define ATTENTION_WALK(D, WARPS, STAGES)                                                                      \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) attention_walk_fast_d##D(                \
        Step step, const u16 *q, u32 ldq, u16 *out, u32 ldo, Cache cache, const u16 *gate, u32 ldg, u32 gate_stride, \
        float *log_sums, float *partial, u32 splits, u32 least, u32 *arrived) {                               \
        attention_walk<D, WARPS, STAGES>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},             \
            {log_sums, cache.heads()}, partial, splits, least, arrived);                                      \
    }
// 128 KiB of keys and values on their way: the product that follows finds room beside it.
ATTENTION_WALK(64, 8, 4)
ATTENTION_WALK(128, 8, 2)
ATTENTION_WALK(256, 4, 2)

// ---- any head size, any cache: one warp a (row, head) --------------------------------------------

// Order: a score is Σ over d ascending in one chain; a block's sum adds lane k mod 32 ascending, lanes by
// exchange; the accumulator adds keys ascending. Blocks and merge as above.
template <typename T>
DEVICE void attention_serial(const Step &step, const T *q, u32 ldq, T *out, u32 ldo, const Cache &cache,
                             const Gate<T> &gate, const LogSums &log_sums, u32 head_dim) {
    extern __shared__ __align__(16) float scratch[];
    begin_kernel();
    u32 row = blockIdx.y, head = blockIdx.x, lane = threadIdx.x;
    if (row >= *step.rows) return;
    SpanInfo span = step.spans[step.span_of_row[row]];
    float *query = scratch, *p = scratch + head_dim, *acc = p + 256;
    for (u32 d = lane; d < head_dim; d += 32) query[d] = widen(q[(u64)row * ldq + head * head_dim + d]);
    __syncwarp();
    u32 keys = step.positions[row] + 1, kv_head = head / cache.group;
    u64 kv_len = (u64)256 * head_dim;
    float m = 0.0f, l = 0.0f;
    for (u32 b = 0; b * 256 < keys; ++b) {
        const T *k = (const T *)(step.pages[span.pages + b] + cache.slot) + kv_head * kv_len;
        const T *v = k + cache.kv_heads * kv_len;
        u32 n = min(keys - b * 256, 256u);
        float top = __uint_as_float(0xff800000u);
        for (u32 i = lane; i < n; i += 32) {
            float sum = 0.0f;
            for (u32 d = 0; d < head_dim; ++d) sum = __fmaf_rn(query[d], widen(k[(u64)i * head_dim + d]), sum);
            p[i] = sum * cache.scale;
            top = fmaxf(top, p[i]);
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
        float total = 0.0f;
        for (u32 i = lane; i < n; i += 32) {
            p[i] = exp_fixed(p[i] - top);
            total = __fadd_rn(total, p[i]);
        }
        total = warp_sum(total);
        __syncwarp();
        float x = 0.0f, y = 1.0f;
        if (b == 0)
            m = top, l = total;
        else {
            merge_scales(m, top, x, y);
            l = merge(l, x, total, y);
        }
        for (u32 d = lane; d < head_dim; d += 32) {
            float sum = 0.0f;
            for (u32 i = 0; i < n; ++i) sum = __fmaf_rn(p[i], widen(v[(u64)i * head_dim + d]), sum);
            acc[d] = b == 0 ? sum : merge(acc[d], x, sum, y);
        }
        __syncwarp();
    }
    for (u32 d = lane; d < head_dim; d += 32)
        out[(u64)row * ldo + head * head_dim + d] = narrow<T>(gate.apply(acc[d] / l, row, head, d));
    if (lane == 0) log_sums.put(row, head, m, l);
}

#define ATTENTION_SERIAL(NAME, T)                                                                             \
    extern "C" __global__ void __launch_bounds__(32) attention_serial_##NAME(                                 \
        Step step, const T *q, u32 ldq, T *out, u32 ldo, Cache cache, const T *gate, u32 ldg, u32 gate_stride, \
        float *log_sums, u32 head_dim) {                                                                      \
        attention_serial<T>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},                          \
            {log_sums, cache.heads()}, head_dim);                                                             \
    }
ATTENTION_SERIAL(bf16, u16)
ATTENTION_SERIAL(f32, float)

// ---- several rows under `fast`, on warpgroups ------------------------------------------------------

#if HAS_WGMMA

// A tile of 128-byte rows whose rows are the k of a product: 64 columns of N a box, boxes `leading` bytes apart.
DEVICE u64 transposed_operand(u32 address, u32 leading) {
    return ((u64)1 << 62) | ((u64)(1024 >> 4) << 32) | ((u64)(leading >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

// The barrier counts this thread once its copies so far have landed.
DEVICE void copy_async_arrive(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// 128 items (row, head in group) of a span and kv head against all their keys, BN at a time: one running
// maximum, probabilities BF16 for the product with values. Two warpgroups multiply, 64 items each; a third
// brings keys and values, a stage ahead. Tiles are boxes of 64 dimensions: rows of 128 bytes, swizzled.
template <int D, int BN> struct WideTile {
    static constexpr int BOXES = D / 64, STAGES = 2;
    static constexpr u32 Q_BYTES = 128 * D * 2, TILE_BYTES = BN * D * 2, BYTES = Q_BYTES + 2 * STAGES * TILE_BYTES + 1024;
};

template <int D, int BN>
DEVICE void attention_rows_fast(const Step &step, const u16 *q, u32 ldq, u16 *out, u32 ldo, const Cache &cache,
                                const Gate<u16> &gate, const LogSums &log_sums) {
    using Tile = WideTile<D, BN>;
    constexpr int STAGES = Tile::STAGES, SS = BN / 2, OS = D / 2;
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ alignas(8) u64 barriers[4 * STAGES];
    begin_kernel();
    SpanInfo span = step.spans[blockIdx.z];
    u32 items = span.rows * cache.group, kv_head = blockIdx.x;
    // Rows with the most keys first.
    u32 first = (gridDim.y - 1 - blockIdx.y) * 128;
    if (span.rows < 2 || first >= items) return;
    u32 base = (shared_address(memory) + 1023) & ~1023u, ring = base + Tile::Q_BYTES;
    u32 full_k = shared_address(barriers), full_v = full_k + 8 * STAGES, empty_k = full_v + 8 * STAGES,
        empty_v = empty_k + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            mbarrier_init(full_k + 8 * s, 128);
            mbarrier_init(full_v + 8 * s, 128);
            mbarrier_init(empty_k + 8 * s, 8);
            mbarrier_init(empty_v + 8 * s, 8);
        }
        fence_barrier_init();
    }
    __syncthreads();
    u32 last = min(first + 128, items) - 1, end = span.position + last / cache.group + 1;
    u32 tiles = (end + BN - 1) / BN;

    if (threadIdx.x >= 256) {
        give_registers<40>();
        u32 tid = threadIdx.x - 256;
        u64 kv_bytes = (u64)256 * D * 2, values = kv_bytes * cache.kv_heads, head = cache.slot + kv_head * kv_bytes;
        constexpr u32 PIECES = D / 8, ROWS = 128 / PIECES;
        u32 piece = tid % PIECES, row = tid / PIECES;
        u32 place = (piece >> 3) * BN * 128;
        for (u32 j = 0; j < tiles; ++j) {
            u32 slot = j % STAGES, parity = (j / STAGES - 1) & 1, key = j * BN;
            const u8 *from = (const u8 *)(step.pages[span.pages + key / 256] + head) + (u64)(key % 256) * D * 2 + tid * 16;
#pragma unroll
            for (u32 which = 0; which < 2; ++which) {
                if (j >= STAGES) mbarrier_wait((which ? empty_v : empty_k) + 8 * slot, parity);
                u32 to = ring + (2 * slot + which) * Tile::TILE_BYTES + place;
#pragma unroll 4
                for (u32 i = 0; i < BN; i += ROWS)
                    copy_async(to + piece_of<8>(row + i, piece & 7), from + i * D * 2, key + row + i < end);
                copy_async_arrive((which ? full_v : full_k) + 8 * slot);
                from += values;
            }
        }
        copy_async_wait<0>();
        return;
    }
    take_registers<232>();
    u32 tid = threadIdx.x & 127, wide = threadIdx.x >> 7, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    // A warpgroup brings its own queries.
    for (u32 e = tid; e < 64 * (D / 8); e += 128) {
        u32 i = e / (D / 8), piece = e % (D / 8), item = min(first + wide * 64 + i, items - 1);
        const u16 *row = q + (u64)(span.first_row + item / cache.group) * ldq + (kv_head * cache.group + item % cache.group) * D;
        copy_async(base + (piece >> 3) * 128 * 128 + piece_of<8>(wide * 64 + i, piece & 7), row + piece * 8, true);
    }
    copy_async_commit();
    copy_async_wait<0>();
    fence_async_proxy();
    named_barrier(1 + wide, 128);

    u32 item[2], limit[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        item[r] = first + wide * 64 + warp * 16 + g + 8 * r;
        limit[r] = span.position + min(item[r], items - 1) / cache.group + 1;
    }
    u32 visible = span.position + min(first + wide * 64, items - 1) / cache.group + 1;
    float s[SS], o[OS], m[2], l[2] = {0.0f, 0.0f};
    u32 p[BN / 16][4];
    float scale = cache.scale * 1.44269504088896340736f;
    m[0] = m[1] = __uint_as_float(0xff800000u);

    auto scores = [&](u32 j) {
        u32 slot = j % STAGES, tile = ring + 2 * slot * Tile::TILE_BYTES;
        mbarrier_wait(full_k + 8 * slot, j / STAGES & 1);
        fence_async_proxy();
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < D / 16; ++kk)
            Wgmma<BN>::run(s, swizzled_operand(base + (kk >> 2) * 128 * 128 + wide * 64 * 128 + (kk & 3) * 32),
                           swizzled_operand(tile + (kk >> 2) * BN * 128 + (kk & 3) * 32), kk > 0);
        wgmma_commit();
    };
    auto product = [&](u32 j) {
        u32 slot = j % STAGES, tile = ring + (2 * slot + 1) * Tile::TILE_BYTES;
        mbarrier_wait(full_v + 8 * slot, j / STAGES & 1);
        fence_async_proxy();
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < BN / 16; ++kk)
            Wgmma<D>::run_transposed(o, p[kk], transposed_operand(tile + kk * 16 * 128, BN * 128), 1);
        wgmma_commit();
    };
    auto release = [&](u32 barrier) {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barrier);
    };
    // Probabilities of tile j in place, relative to the new maximum; gives what older sums are scaled by.
    auto softmax = [&](u32 j, float (&older)[2]) {
        if ((j + 1) * BN > visible)
#pragma unroll
            for (int n = 0; n < SS; ++n)
                if (j * BN + (n >> 2) * 8 + 2 * t + (n & 1) >= limit[n >> 1 & 1]) s[n] = __uint_as_float(0xff800000u);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float top = m[r];
#pragma unroll
            for (int n = 0; n < SS; n += 4) top = fmaxf(top, fmaxf(s[n + 2 * r], s[n + 2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            older[r] = exp2_quick((m[r] - top) * scale);
            m[r] = top;
            float shift = -top * scale, sum[2] = {0.0f, 0.0f};
#pragma unroll
            for (int n = 0; n < SS; n += 4)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float x = exp2_quick(__fmaf_rn(s[n + 2 * r + i], scale, shift));
                    s[n + 2 * r + i] = x;
                    sum[i] += x;
                }
            l[r] = __fmaf_rn(l[r], older[r], sum[0] + sum[1]);
        }
    };
    auto pack = [&]() {
#pragma unroll
        for (int kk = 0; kk < BN / 16; ++kk)
#pragma unroll
            for (int i = 0; i < 4; ++i) p[kk][i] = f32x2_to_bf16x2(s[8 * kk + 2 * i], s[8 * kk + 2 * i + 1]);
    };

    float older[2];
#pragma unroll
    for (int i = 0; i < OS; ++i) o[i] = 0.0f;
    scores(0);
    wgmma_wait<0>();
    pin_registers(s);
    release(empty_k);
    softmax(0, older);
    pack();
#pragma unroll 1
    for (u32 j = 1; j < tiles; ++j) {
        scores(j);
        product(j - 1);
        wgmma_wait<1>();
        pin_registers(s);
        release(empty_k + 8 * (j % STAGES));
        softmax(j, older);
        wgmma_wait<0>();
        pin_registers(o);
        release(empty_v + 8 * ((j - 1) % STAGES));
#pragma unroll
        for (int i = 0; i < OS; ++i) o[i] *= older[i >> 1 & 1];
        pack();
    }
    product(tiles - 1);
    wgmma_wait<0>();
    pin_registers(o);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(~0u, l[r], 1);
        l[r] += __shfl_xor_sync(~0u, l[r], 2);
        if (item[r] >= items) continue;
        u32 row = span.first_row + item[r] / cache.group, head = kv_head * cache.group + item[r] % cache.group;
        u16 *to = out + (u64)row * ldo + head * D;
        float inverse = 1.0f / l[r];
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
            u32 d = 8 * n + 2 * t;
            *(u32 *)(to + d) = output_pair(o[4 * n + 2 * r] * inverse, o[4 * n + 2 * r + 1] * inverse, gate, row, head, d);
        }
        if (t == 0) log_sums.put(row, head, (double)m[r] * cache.scale, l[r]);
    }
}

#define ATTENTION_ROWS_FAST(D, BN)                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1) attention_rows_fast_d##D(                            \
        Step step, const u16 *q, u32 ldq, u16 *out, u32 ldo, Cache cache, const u16 *gate, u32 ldg, u32 gate_stride, \
        float *log_sums) { \
        attention_rows_fast<D, BN>(step, q, ldq, out, ldo, cache, {gate, ldg, gate_stride},                   \
            {log_sums, cache.heads()});                                                                       \
    }
ATTENTION_ROWS_FAST(64, 128)
ATTENTION_ROWS_FAST(128, 128)
ATTENTION_ROWS_FAST(256, 64)

#endif
