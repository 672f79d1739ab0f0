R"hip(
// Tensors of float32 as half precision with the channels last: [rows, channels, window] -> [rows, window, channels]. A
// block takes some channels of one row through shared memory. No header.
// Given: IS_BF16; TILE, elements that a block takes at most; PIECES, tensors at most; THREADS of a block.
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
#define DEV static __device__ __forceinline__
#if defined(__HIP_PLATFORM_AMD__) || defined(__AMDGCN__) || defined(__HIPCC_RTC__)
#define CONSTANT
DEV u32 f16_of(float f) { const _Float16 h = (_Float16)f; u16 bits; __builtin_memcpy(&bits, &h, 2); return bits; }
#else
#define CONSTANT __grid_constant__
DEV u32 f16_of(float f) { u16 bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f)); return bits; }
#endif
#if __CUDA_ARCH__ >= 800
DEV u32 bf16_of(float f) { u16 bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f)); return bits; }
#else
DEV u32 bf16_of(float f) {  // to nearest even, NaN kept
  union { float f; u32 bits; } u;
  u.f = f;
  return (u.bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (u.bits + 0x7fffu + ((u.bits >> 16) & 1)) >> 16;
}
#endif
DEV u32 half_of(float f) { return IS_BF16 ? bf16_of(f) : f16_of(f); }

struct Piece {
  const float* from;
  u16* to;
  int channels, window, part;  // part: channels of a block, even if `channels` is
  int first;                   // block of the piece
};
struct Pieces {
  int count;
  Piece at[PIECES];
};

extern "C" __global__ void __launch_bounds__(THREADS) fj_cast_last(const CONSTANT Pieces pieces) {
  __shared__ float tile[TILE];
  int own = 0;
  for (int end = pieces.count; own + 1 < end;) {
    const int middle = (own + end) / 2;
    if (pieces.at[middle].first <= (int)blockIdx.x) own = middle;
    else end = middle;
  }
  const Piece& piece = pieces.at[own];
  const int channels = piece.channels, window = piece.window, part = piece.part;
  const int parts = (channels + part - 1) / part, block = (int)blockIdx.x - piece.first;
  const int begin = block % parts * part, count = channels - begin < part ? channels - begin : part;
  const i64 row = (i64)(block / parts) * channels * window;
  const float* from = piece.from + row + begin * window;
#pragma unroll 9
  for (int i = (int)threadIdx.x; i < count * window; i += THREADS) tile[i] = from[i];
  __syncthreads();
  u16* to = piece.to + row + begin;
  const int step = channels % 2 == 0 ? 2 : 1, steps = count / step;
  int k = (int)threadIdx.x / steps, c = (int)threadIdx.x % steps;
  while (k < window) {
    const float* at = tile + c * step * window + k;
    u16* result = to + k * channels + c * step;
    if (step == 2) *(u32*)result = half_of(at[0]) | half_of(at[window]) << 16;
    else *result = (u16)half_of(at[0]);
    for (c += THREADS; c >= steps && k < window; c -= steps) ++k;
  }
}
)hip"
