R"hip(
// The beginning of every generated kernel. It includes no header and compiles with hiprtc and NVRTC; all their
// differences are here.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define DEV static __device__ __forceinline__
#define KERNEL(threads, ...) extern "C" __global__ void __VA_ARGS__ __launch_bounds__(threads) kernel

#if defined(__HIP_PLATFORM_AMD__) || defined(__AMDGCN__) || defined(__HIPCC_RTC__)
#ifndef WAVE
#define WAVE 64  // 32 on gfx10 and later, by option
#endif
DEV u32 shuffle_word(u32 v, int mask) {
  const int lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  return (u32)__builtin_amdgcn_ds_bpermute((lane ^ mask) << 2, (int)v);
}
DEV float f32_of_f16(u16 bits) { _Float16 h; __builtin_memcpy(&h, &bits, 2); return (float)h; }
DEV u16 f16_of(float f) { const _Float16 h = (_Float16)f; u16 bits; __builtin_memcpy(&bits, &h, 2); return bits; }
typedef u32 word8 __attribute__((vector_size(8)));
typedef u32 word16 __attribute__((vector_size(16)));
DEV void out_of_range() { __builtin_trap(); }
DEV void after_previous() {}  // kernels never overlap
#define RESIDENT(blocks)  // here the compiler would take it for a number of waves
DEV void load_once(u32* to, const void* from) {
  const word16 word = __builtin_nontemporal_load((const word16*)from);
  for (int k = 0; k < 4; ++k) to[k] = word[k];
}
#else
#define WAVE 32
DEV u32 shuffle_word(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEV float f32_of_f16(u16 bits) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits)); return f; }
DEV u16 f16_of(float f) { u16 bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f)); return bits; }
struct alignas(8) word8 { u32 at[2]; __device__ u32& operator[](int k) { return at[k]; } };
struct alignas(16) word16 { u32 at[4]; __device__ u32& operator[](int k) { return at[k]; } };
DEV void out_of_range() { __assertfail("index out of bounds", "framejit", 0, "kernel", 1); }
#define RESIDENT(blocks) , blocks
#define CLUSTER(blocks) __attribute__((cluster_dims(blocks, 1, 1)))
#if __CUDA_ARCH__ >= 900
// Until the wait ends, earlier kernels may still run, and memory that they write must not be touched. The next kernel
// may begin as soon as all blocks have come here: by then, everything before this kernel has ended.
DEV void after_previous() { asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory"); }
DEV void blocks_meet() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
DEV u32 word_of_block(const u32* shared, u32 block) {
  u32 address, word;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"((u32)__cvta_generic_to_shared(shared)), "r"(block));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
#define BLOCKS_MEET 1
#else
DEV void after_previous() {}
#endif
#if __CUDA_ARCH__ >= 800
#define IS_SM80 1
#define LOAD_ONCE "ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
#else
#define LOAD_ONCE "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
#endif
DEV void load_once(u32* to, const void* from) {
  asm volatile(LOAD_ONCE : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}
#endif

template <class To, class From> DEV To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
  union { From from; To to; } u;
  u.from = from;
  return u.to;
}
DEV float as_f32(u32 bits) { return bits_as<float>(bits); }
DEV double as_f64(u64 bits) { return bits_as<double>(bits); }

// Elements in memory; loads and stores convert between them and values.
struct f16m { u16 bits; };
struct bf16m { u16 bits; };
struct boolm { u8 byte; };
#ifdef IS_SM80
DEV u16 bf16_of(float f) { u16 bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f)); return bits; }
#else
DEV u16 bf16_of(float f) {  // to nearest even, NaN kept
  const u32 u = bits_as<u32>(f);
  return (u & 0x7fffffffu) > 0x7f800000u ? (u16)0x7fc0 : (u16)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
#endif
template <class T> DEV T value_of(T v) { return v; }
DEV float value_of(f16m v) { return f32_of_f16(v.bits); }
DEV float value_of(bf16m v) { return as_f32((u32)v.bits << 16); }
DEV bool value_of(boolm v) { return v.byte != 0; }
template <class T> DEV void put(T* to, T v) { *to = v; }
DEV void put(f16m* to, float v) { to->bits = f16_of(v); }
DEV void put(bf16m* to, float v) { to->bits = bf16_of(v); }
DEV void put(boolm* to, bool v) { to->byte = v; }

// V adjacent elements, as words in registers. Elements must be set in order: the first one of a word clears the rest.
template <class T, int V> struct Run {
  static constexpr int kBytes = V * (int)sizeof(T);
  u32 words[(kBytes + 3) / 4];
  __device__ T get(int j) const {
    if constexpr (sizeof(T) == 8) return bits_as<T>((u64)words[2 * j] | (u64)words[2 * j + 1] << 32);
    else if constexpr (sizeof(T) == 4) return bits_as<T>(words[j]);
    else if constexpr (sizeof(T) == 2) return bits_as<T>((u16)(words[j / 2] >> j % 2 * 16));
    else return bits_as<T>((u8)(words[j / 4] >> j % 4 * 8));
  }
  __device__ void set(int j, T v) {
    if constexpr (sizeof(T) == 8) words[2 * j] = (u32)bits_as<u64>(v), words[2 * j + 1] = (u32)(bits_as<u64>(v) >> 32);
    else if constexpr (sizeof(T) == 4) words[j] = bits_as<u32>(v);
    else if constexpr (sizeof(T) == 2) words[j / 2] = j % 2 == 0 ? bits_as<u16>(v) : words[j / 2] | (u32)bits_as<u16>(v) << 16;
    else words[j / 4] = j % 4 == 0 ? bits_as<u8>(v) : words[j / 4] | (u32)bits_as<u8>(v) << j % 4 * 8;
  }
};
template <int V, class T, class M> DEV void put_run(Run<M, V>& to, int j, T v) { M m; put(&m, v); to.set(j, m); }
template <class W, int V, class T> DEV void load_words(Run<T, V>& to, const T* from) {
#pragma unroll
  for (int k = 0; k < (int)(Run<T, V>::kBytes / sizeof(W)); ++k) {
    W word = ((const W*)from)[k];
    for (int i = 0; i < (int)sizeof(W) / 4; ++i) to.words[k * (int)sizeof(W) / 4 + i] = word[i];
  }
}
template <class W, int V, class T> DEV void store_words(T* to, const Run<T, V>& from) {
#pragma unroll
  for (int k = 0; k < (int)(Run<T, V>::kBytes / sizeof(W)); ++k) {
    W word;
    for (int i = 0; i < (int)sizeof(W) / 4; ++i) word[i] = from.words[k * (int)sizeof(W) / 4 + i];
    ((W*)to)[k] = word;
  }
}
// `wide`: the addresses of all runs are multiples of their size, or of 16. `count`: elements up to the end.
template <int V, class T> DEV void load_run(Run<T, V>& to, const T* from, bool wide, i64 count = V) {
  if (V > 1 && wide && count >= V) {
    if constexpr (Run<T, V>::kBytes % 16 == 0) load_words<word16>(to, from);
    else if constexpr (Run<T, V>::kBytes == 8) load_words<word8>(to, from);
    else if constexpr (Run<T, V>::kBytes == 4) to.words[0] = *(const u32*)from;
    else to.words[0] = *(const u16*)from;
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    T v = {};
    if (j < count) v = from[j];
    to.set(j, v);
  }
}
template <int V, class T> DEV void store_run(T* to, const Run<T, V>& from, bool wide, i64 count = V) {
  if (V > 1 && wide && count >= V) {
    if constexpr (Run<T, V>::kBytes % 16 == 0) store_words<word16>(to, from);
    else if constexpr (Run<T, V>::kBytes == 8) store_words<word8>(to, from);
    else if constexpr (Run<T, V>::kBytes == 4) *(u32*)to = from.words[0];
    else *(u16*)to = (u16)from.words[0];
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j)
    if (j < count) to[j] = from.get(j);
}

// For words that the kernel reads once, at multiples of 16 bytes, and that nobody writes while it runs.
template <int V, class T> DEV void stream_run(Run<T, V>& to, const T* from) {
  static_assert(Run<T, V>::kBytes % 16 == 0, "whole words");
#pragma unroll
  for (int k = 0; k < Run<T, V>::kBytes / 16; ++k) load_once(to.words + 4 * k, (const char*)from + 16 * k);
}

// Index arithmetic: Python's division.
template <class T> DEV T idx_div(T a, T b) { const T q = a / b; return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q; }
template <class T> DEV T idx_mod(T a, T b) { const T r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
template <class T> DEV T idx_min(T a, T b) { return a < b ? a : b; }
template <class T> DEV T idx_max(T a, T b) { return a > b ? a : b; }

// An index from data; negative ones count from the end if it wraps.
template <bool kWrap, class T> DEV i64 checked(T value, i64 extent) {
  i64 at = (i64)value;
  if (kWrap && at < 0) at += extent;
  if (at < 0 || at >= extent) out_of_range();
  return at;
}

// What powers are taken relative to, where `top` is the largest of their exponents: not minus infinity.
DEV float finite_base(float top) { return top == -as_f32(0x7f800000u) ? 0.0f : top; }

// Integers wrap around: the arithmetic is on u64, and the conversion back truncates.
template <class T> DEV T fj_add(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> DEV T fj_sub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> DEV T fj_mul(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> DEV T fj_neg(T a) { return (T)(0 - (u64)a); }
template <class T> DEV T fj_abs(T a) { return a < 0 ? fj_neg(a) : a; }
template <class T> DEV T fj_sign(T a) { return (T)((a > 0) - (a < 0)); }
template <class T> DEV T fj_minimum(T a, T b) { return a < b ? a : b; }
template <class T> DEV T fj_maximum(T a, T b) { return a > b ? a : b; }
template <class T> DEV bool minus_one(T a) { return a < 0 && a + 1 == 0; }
template <class T> DEV T fj_trunc_div(T a, T b) { return minus_one(b) ? fj_neg(a) : (T)(a / b); }
template <class T> DEV T fj_fmod(T a, T b) { return minus_one(b) ? (T)0 : (T)(a % b); }
template <class T> DEV T fj_floor_div(T a, T b) { const T r = fj_fmod(a, b), q = fj_trunc_div(a, b); return r != 0 && (r < 0) != (b < 0) ? fj_sub(q, (T)1) : q; }
template <class T> DEV T fj_rem(T a, T b) { const T r = fj_fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; }
template <class T> DEV T fj_floor(T a) { return a; }
template <class T> DEV T fj_ceil(T a) { return a; }
template <class T> DEV T fj_trunc(T a) { return a; }
template <class T> DEV T fj_round(T a) { return a; }
template <class T> DEV T fj_bit_and(T a, T b) { return a & b; }
template <class T> DEV T fj_bit_or(T a, T b) { return a | b; }
template <class T> DEV T fj_bit_xor(T a, T b) { return a ^ b; }
template <class T> DEV T fj_bit_not(T a) { return ~a; }
DEV bool fj_bit_not(bool a) { return !a; }
template <class T> DEV T fj_shl(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)0 : (T)((u64)a << b); }
template <class T> DEV T fj_shr(T a, T b) { return (T)(a >> (b < 0 || b >= (T)(8 * sizeof(T)) ? (T)(8 * sizeof(T) - 1) : b)); }

// Floats. Both compilers know C's functions of float and double.
#define BOTH_1(name, f32, f64) DEV float fj_##name(float a) { return f32; } DEV double fj_##name(double a) { return f64; }
#define BOTH_2(name, f32, f64) DEV float fj_##name(float a, float b) { return f32; } DEV double fj_##name(double a, double b) { return f64; }
#define CALL_1(name, function) BOTH_1(name, function##f(a), function(a))
#define CALL_2(name, function) BOTH_2(name, function##f(a, b), function(a, b))
BOTH_2(add, a + b, a + b)
BOTH_2(sub, a - b, a - b)
BOTH_2(mul, a * b, a * b)
BOTH_2(div, a / b, a / b)
BOTH_1(neg, -a, -a)
CALL_1(abs, fabs)
BOTH_1(sign, (float)((a > 0) - (a < 0)), (double)((a > 0) - (a < 0)))
// A NaN in either operand is the result.
#ifdef IS_SM80
DEV float fj_minimum(float a, float b) { float m; asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b)); return m; }
DEV float fj_maximum(float a, float b) { float m; asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b)); return m; }
#else
DEV float fj_minimum(float a, float b) { return a != a || a < b ? a : b; }
DEV float fj_maximum(float a, float b) { return a != a || a > b ? a : b; }
#endif
DEV double fj_minimum(double a, double b) { return a != a || a < b ? a : b; }
DEV double fj_maximum(double a, double b) { return a != a || a > b ? a : b; }
// a / b, where r is 1 / b and the same for many a: one Newton step gives the correctly rounded quotient (Markstein).
// If |b| is below one, a * r might overflow though the quotient does not, so a / b is used. Infinite a stay infinite.
DEV float quotient(float a, float b, float r) {
  if (!(fabsf(r) <= 1.0f && fabsf(r) > 1e-37f)) return a / b;
  const float q = a * r, better = fmaf(fmaf(-q, b, a), r, q);
  return better == better ? better : q;
}
CALL_1(floor, floor) CALL_1(ceil, ceil) CALL_1(trunc, trunc) CALL_1(round, rint)
BOTH_2(trunc_div, truncf(a / b), trunc(a / b))
CALL_2(fmod, fmod) CALL_2(pow, pow) CALL_2(atan2, atan2) CALL_2(hypot, hypot) CALL_2(copysign, copysign)
CALL_1(sqrt, sqrt) CALL_1(exp, exp) CALL_1(exp2, exp2) CALL_1(expm1, expm1) CALL_1(log, log) CALL_1(log2, log2) CALL_1(log10, log10)
CALL_1(log1p, log1p) CALL_1(sin, sin) CALL_1(cos, cos) CALL_1(tan, tan) CALL_1(asin, asin) CALL_1(acos, acos) CALL_1(atan, atan)
CALL_1(sinh, sinh) CALL_1(cosh, cosh) CALL_1(asinh, asinh) CALL_1(acosh, acosh) CALL_1(atanh, atanh) CALL_1(tanh, tanh)
CALL_1(erf, erf) CALL_1(erfc, erfc)
// 1 / sqrt(a): what the hardware has, and one Newton step. Roots of 0 and of infinity stay what they are.
DEV float fj_rsqrt(float a) {
  const float r = rsqrtf(a), better = fmaf(0.5f * r, fmaf(-(a * r), r, 1.0f), r);
  return better == better ? better : r;
}
BOTH_1(sigmoid, 1.0f / (1.0f + expf(-a)), 1.0 / (1.0 + exp(-a)))
DEV float fj_round_bf16(float a) { return as_f32((u32)bf16_of(a) << 16); }
DEV float fj_round_f16(float a) { return f32_of_f16(f16_of(a)); }
template <class T> DEV T float_rem(T a, T b) { const T r = fj_fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
template <class T> DEV T float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T r = fj_fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return fj_copysign((T)0, a / b);
  const T down = fj_floor(q);
  return q - down > (T)0.5 ? down + 1 : down;
}
BOTH_2(rem, float_rem(a, b), float_rem(a, b))
BOTH_2(floor_div, float_floor_div(a, b), float_floor_div(a, b))

template <class To, class From> DEV To fj_cast(From v) { return (To)v; }
template <> __device__ __forceinline__ bool fj_cast<bool, float>(float v) { return v != 0; }
template <> __device__ __forceinline__ bool fj_cast<bool, double>(double v) { return v != 0; }
// As torch's, also for negative numbers: the low bits of the integer.
template <> __device__ __forceinline__ u8 fj_cast<u8, float>(float v) { return (u8)(i64)v; }
template <> __device__ __forceinline__ u8 fj_cast<u8, double>(double v) { return (u8)(i64)v; }

// Reductions: each thread passes its part and gets the whole. The order is the same in every run.
struct Sum { template <class T> DEV T of(T a, T b) { return fj_add(a, b); } };
struct Prod { template <class T> DEV T of(T a, T b) { return fj_mul(a, b); } };
struct Max { template <class T> DEV T of(T a, T b) { return fj_maximum(a, b); } };
struct Min { template <class T> DEV T of(T a, T b) { return fj_minimum(a, b); } };
struct Any { DEV bool of(bool a, bool b) { return a || b; } };
struct All { DEV bool of(bool a, bool b) { return a && b; } };
// The first of equal values; NaN beats everything; at < 0: empty.
template <class T, class I> struct Best { T value; I at; };
template <bool kMax, class T> DEV bool is_better(T a, T b) { return (a != a && b == b) || (b == b && (kMax ? a > b : a < b)); }
template <bool kMax, class T, class I> DEV Best<T, I> best_of(Best<T, I> a, Best<T, I> b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  if (is_better<kMax>(a.value, b.value)) return a;
  if (is_better<kMax>(b.value, a.value)) return b;
  return a.at < b.at ? a : b;
}
// One more value, at a position after all others.
template <bool kMax, class T, class I> DEV Best<T, I> best_with(Best<T, I> a, T v, I at) {
  return a.at < 0 || is_better<kMax>(v, a.value) ? Best<T, I>{v, at} : a;
}
struct Argmax {
  template <class B> DEV B of(B a, B b) { return best_of<true>(a, b); }
  template <class B, class T, class I> DEV B next(B a, T v, I at) { return best_with<true>(a, v, at); }
};
struct Argmin {
  template <class B> DEV B of(B a, B b) { return best_of<false>(a, b); }
  template <class B, class T, class I> DEV B next(B a, T v, I at) { return best_with<false>(a, v, at); }
};

template <class T> DEV T shuffle(T v, int mask) {
  union { T value; u32 words[(sizeof(T) + 3) / 4]; } u;
  u.words[(sizeof(T) + 3) / 4 - 1] = 0;
  u.value = v;
  for (u32& word : u.words) word = shuffle_word(word, mask);
  return u.value;
}
template <class Op, class T> DEV T wave_reduce(T v) {
#pragma unroll
  for (int mask = WAVE / 2; mask > 0; mask >>= 1) v = Op::of(v, shuffle(v, mask));
  return v;
}
template <class Op, class T> DEV T block_reduce(T v, u64* scratch) {
  T* const parts = (T*)scratch;
  v = wave_reduce<Op>(v);
  if (blockDim.x <= WAVE) return v;
  __syncthreads();  // all threads have read the last result
  if (threadIdx.x % WAVE == 0) parts[threadIdx.x / WAVE] = v;
  __syncthreads();
  v = parts[0];
  for (u32 w = 1; w < blockDim.x / WAVE; ++w) v = Op::of(v, parts[w]);
  return v;
}
// Reduces over kThreads adjacent threads (a power of two, or whole waves), as far as they lie in one wave.
template <class Op, int kThreads, class T> DEV T lanes_reduce(T v) {
#pragma unroll
  for (int mask = (kThreads < WAVE ? kThreads : WAVE) / 2; mask > 0; mask >>= 1) v = Op::of(v, shuffle(v, mask));
  return v;
}
// Joins the results of several waves, in their order.
template <class Op, int kCount, class T> DEV T joined(const T* parts) {
  T v = parts[0];
#pragma unroll
  for (int k = 1; k < kCount; ++k) v = Op::of(v, parts[k]);
  return v;
}
// Reduces over the kThreads adjacent threads of a row, a power of two. Consecutive calls must alternate between two
// `scratch` areas.
template <class Op, int kThreads, class T> DEV T row_reduce(T v, u64* scratch) {
  v = lanes_reduce<Op, kThreads>(v);
  if constexpr (kThreads > WAVE) {
    constexpr int kWaves = kThreads / WAVE;
    T* const parts = (T*)scratch + threadIdx.x / kThreads * kWaves;
    if (threadIdx.x % WAVE == 0) parts[threadIdx.x % kThreads / WAVE] = v;
    __syncthreads();
    if constexpr (kWaves > 8) {
      v = parts[threadIdx.x % kWaves];
#pragma unroll
      for (int mask = kWaves / 2; mask > 0; mask >>= 1) v = Op::of(v, shuffle(v, mask));
    } else {
      v = joined<Op, kWaves>(parts);
    }
  }
  return v;
}
#ifdef BLOCKS_MEET
// The same over a row that kBlocks adjacent blocks share. Consecutive calls also alternate between two parts of `met`.
template <class Op, int kThreads, int kBlocks, class T> DEV T blocks_reduce(T v, u64* scratch, u64* met) {
  v = row_reduce<Op, kThreads>(v, scratch);
  if (threadIdx.x == 0) *(T*)met = v;
  blocks_meet();
  T parts[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    union { T value; u32 words[(sizeof(T) + 3) / 4]; } u;
    for (int i = 0; i < (int)(sizeof(T) + 3) / 4; ++i) u.words[i] = word_of_block((const u32*)met + i, k);
    parts[k] = u.value;
  }
  return joined<Op, kBlocks>(parts);
}
#endif
// A block has `lanes` adjacent runs of V columns, and several threads for each run. The first V of these get the result
// of one column each.
template <class Op, int V, class T> DEV T column_reduce(const T (&v)[V], u64* scratch, u32 lanes) {
  T* const parts = (T*)scratch;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; ++j) parts[j * blockDim.x + threadIdx.x] = v[j];
  __syncthreads();
  const u32 own = threadIdx.x / lanes, first = (own < V ? own : 0) * blockDim.x + threadIdx.x % lanes;
  T whole = parts[first];
  for (u32 k = lanes; k < blockDim.x; k += lanes) whole = Op::of(whole, parts[first + k]);
  return whole;
}
)hip"
