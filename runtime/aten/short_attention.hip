R"hip(
// Attention whose keys and values all lie in shared memory: softmax(query @ key^T * scale + mask) @ value for 64 queries
// of one head in a block. Scores stay in registers. Rows of 64 elements of half precision; no header.
// Given: KEYS, their number; IS_BF16; MASK: 0 none, 1 added, in the dtype of the query, 2 causal.
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
#define DEV static __device__ __forceinline__
struct Strides { i64 batch, head; int row; };
struct Arguments {
  const u16 *query, *key, *value, *mask;
  u16* result;
  Strides q, k, v, m, r;
  int mask_column, mask_in_pairs;  // the latter: words of 4 bytes hold two columns
  int heads, queries;
  float scale;
};
constexpr int kRows = (KEYS + 15) / 16 * 16;  // of keys, with those that are zero
DEV u32 shared_at(const void* p) { u32 r; asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p)); return r; }
DEV void copy16(u32 to, const void* from, bool ok) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(ok ? 16 : 0) : "memory"); }
DEV void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void wait_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
DEV void load_tiles(u32* r, u32 at) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)); }
DEV void load_turned(u32* r, u32 at) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)); }
#if IS_BF16
#define HALF "bf16"
DEV float wide(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEV u32 pair(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
#else
#define HALF "f16"
DEV float wide(u16 bits) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits)); return f; }
DEV u32 pair(float a, float b) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
#endif
DEV void multiply(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV float exp2_of(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float other(float v, int lane) { return __shfl_xor_sync(0xffffffffu, v, lane); }
DEV float larger(float a, float b) { return b > a ? b : a; }

// Rows of 128 bytes, whose words of 16 bytes are permuted so that eight rows use all banks.
DEV u32 word(u32 base, int row, int column) { return base + row * 128 + ((column ^ (row & 7)) << 4); }
template <int N> DEV void copy_rows(u32 to, const u16* from, int stride, int count) {
#pragma unroll
  for (int i = threadIdx.x; i < N * 8; i += 128) {
    const int r = i / 8, c = i % 8;
    copy16(word(to, r, c), from + (r < count ? r : 0) * stride + c * 8, r < count);
  }
}

extern "C" __global__ void __launch_bounds__(128) fj_short_attention(const Arguments a) {
  constexpr int kTiles = kRows / 8;
  const float kLog2e = 1.4426950408889634f, kLow = __uint_as_float(0xff800000u);
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 queries = shared_at(memory), keys = queries + 64 * 128, values = keys + kRows * 128;
  const int lane = threadIdx.x % 32, wave = threadIdx.x / 32, blocks = (a.queries + 63) / 64;
  const int first = blockIdx.x % blocks * 64, head = blockIdx.x / blocks % a.heads, batch = blockIdx.x / blocks / a.heads;
  copy_rows<64>(queries, a.query + batch * a.q.batch + head * a.q.head + first * a.q.row, a.q.row, a.queries - first);
  copy_rows<kRows>(keys, a.key + batch * a.k.batch + head * a.k.head, a.k.row, KEYS);
  end_copies();
  copy_rows<kRows>(values, a.value + batch * a.v.batch + head * a.v.head, a.v.row, KEYS);
  end_copies();
  // Each thread has columns j * 8 + lane % 4 * 2 + e of two rows.
  const int row = first + wave * 16 + lane / 4;
#if MASK == 1
  u32 masks[2][kTiles];  // on their way while the keys are
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const u16* const from = a.mask + batch * a.m.batch + head * a.m.head + (row + 8 * k < a.queries ? row + 8 * k : 0) * a.m.row;
    if (a.mask_in_pairs) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        masks[k][j] = column < KEYS ? *(const u32*)(from + column) : 0;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        const u32 low = column < KEYS ? from[column * a.mask_column] : 0;
        masks[k][j] = low | (column + 1 < KEYS ? (u32)from[(column + 1) * a.mask_column] << 16 : 0);
      }
    }
  }
#endif
  wait_copies<1>();
  __syncthreads();
  float s[kTiles][4];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    u32 q[4];
    load_tiles(q, word(queries, wave * 16 + (lane & 15), step * 2 + (lane >> 4)));
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      u32 k[4];
      load_tiles(k, word(keys, j * 16 + (lane & 7) + ((lane >> 4) << 3), step * 2 + ((lane >> 3) & 1)));
      multiply(s[j * 2], q, k[0], k[1]);
      multiply(s[j * 2 + 1], q, k[2], k[3]);
    }
  }
  const float scale = a.scale * kLog2e;
  float most[2] = {kLow, kLow}, sum[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = j * 8 + lane % 4 * 2 + e % 2, k = e / 2;
      float score = s[j][e] * scale;
#if MASK == 1
      score += wide((u16)(masks[k][j] >> e % 2 * 16)) * kLog2e;
#elif MASK == 2
      if (column > row + 8 * k) score = kLow;
#endif
      if (KEYS % 16 != 0 && j >= KEYS / 8 && column >= KEYS) score = kLow;
      s[j][e] = score;
      most[k] = larger(most[k], score);
    }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    most[k] = larger(most[k], other(most[k], 1));
    most[k] = larger(most[k], other(most[k], 2));
    if (most[k] == kLow) most[k] = 0;  // everything is excluded
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[j][e] = exp2_of(s[j][e] - most[e / 2]);
      sum[e / 2] += s[j][e];
    }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    sum[k] += other(sum[k], 1);
    sum[k] += other(sum[k], 2);
    sum[k] = sum[k] == 0 ? 0 : 1 / sum[k];
  }
  wait_copies<0>();
  __syncthreads();
  float o[8][4];
#pragma unroll
  for (int j = 0; j < 8; ++j) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;
#pragma unroll
  for (int t = 0; t < kRows / 16; ++t) {
    const u32 p[4] = {pair(s[2 * t][0], s[2 * t][1]), pair(s[2 * t][2], s[2 * t][3]), pair(s[2 * t + 1][0], s[2 * t + 1][1]), pair(s[2 * t + 1][2], s[2 * t + 1][3])};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 v[4];
      load_turned(v, word(values, t * 16 + (lane & 15), j * 2 + (lane >> 4)));
      multiply(o[j * 2], p, v[0], v[1]);
      multiply(o[j * 2 + 1], p, v[2], v[3]);
    }
  }
  u16* const result = a.result + batch * a.r.batch + head * a.r.head;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if (row + 8 * k < a.queries)
        *(u32*)(result + (row + 8 * k) * a.r.row + j * 8 + lane % 4 * 2) = pair(o[j][2 * k] * sum[k], o[j][2 * k + 1] * sum[k]);
}
)hip"
