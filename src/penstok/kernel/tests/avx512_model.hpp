// The AVX-512 instructions the kernel uses, in plain C++: so that avx512.hpp can be tested,
// line by line, on a machine that has AVX2 only (PENSTOK_KERNEL_MODEL_AVX512). Written from the
// instruction reference; slow.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace penstok::kernel::avx512::model {

template <class T, class Vector>
struct Lanes {
  static constexpr unsigned kCount = sizeof(Vector) / sizeof(T);
  T at[kCount];

  explicit Lanes(const Vector& v) { std::memcpy(at, &v, sizeof v); }
  Lanes() : at{} {}
  Vector vector() const {
    Vector v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
};

template <class To>
inline To load(const void* from) {
  To v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class To, class T>
inline To set1(T value) {
  Lanes<T, To> to;
  for (T& lane : to.at) lane = value;
  return to.vector();
}

// One bit for each pair of lanes for which the predicate holds.
template <class T, class V, class Predicate>
inline uint64_t mask_of(const V& a, const V& b, Predicate holds) {
  const Lanes<T, V> x(a), y(b);
  uint64_t mask = 0;
  for (unsigned i = 0; i < x.kCount; ++i) mask |= uint64_t{holds(x.at[i], y.at[i])} << i;
  return mask;
}
template <class T, class V>
inline uint64_t equal(const V& a, const V& b) {
  return mask_of<T>(a, b, [](T x, T y) { return x == y; });
}
template <class T, class V>
inline uint64_t not_equal(const V& a, const V& b) {
  return mask_of<T>(a, b, [](T x, T y) { return x != y; });
}

template <class T, class V, class Operation>
inline V each(const V& a, const V& b, Operation apply) {
  const Lanes<T, V> x(a), y(b);
  Lanes<T, V> to;
  for (unsigned i = 0; i < x.kCount; ++i) to.at[i] = static_cast<T>(apply(x.at[i], y.at[i]));
  return to.vector();
}

// Lanes of `a` where the mask has a bit, of `otherwise` elsewhere.
template <class T, class V>
inline V blend(const V& otherwise, uint64_t mask, const V& a) {
  const Lanes<T, V> x(a);
  Lanes<T, V> to(otherwise);
  for (unsigned i = 0; i < x.kCount; ++i) {
    if (mask >> i & 1) to.at[i] = x.at[i];
  }
  return to.vector();
}

// The lanes with a bit, side by side; the rest from `otherwise`.
template <class T, class V>
inline V compress(const V& otherwise, uint64_t mask, const V& a) {
  const Lanes<T, V> x(a);
  Lanes<T, V> to(otherwise);
  unsigned kept = 0;
  for (unsigned i = 0; i < x.kCount; ++i) {
    if (mask >> i & 1) to.at[kept++] = x.at[i];
  }
  return to.vector();
}

// Lane i of the result is lane index[i] of the table, which may be two registers long.
template <class T, class V>
inline V look_up(const V& index, const V& low, const V& high) {
  const Lanes<T, V> x(index), first(low), second(high);
  Lanes<T, V> to;
  for (unsigned i = 0; i < x.kCount; ++i) {
    const unsigned from = x.at[i] % (2 * x.kCount);
    to.at[i] = from < x.kCount ? first.at[from] : second.at[from - x.kCount];
  }
  return to.vector();
}

template <class To, class ToLane, class FromLane, class From>
inline To convert(const From& v) {
  const Lanes<FromLane, From> x(v);
  Lanes<ToLane, To> to;
  for (unsigned i = 0; i < to.kCount; ++i) to.at[i] = static_cast<ToLane>(x.at[i]);
  return to.vector();
}

template <class To, class From>
inline To part(const From& v, unsigned number) {
  To to;
  std::memcpy(&to, reinterpret_cast<const char*>(&v) + number * sizeof to, sizeof to);
  return to;
}

inline __m512i insert_half(const __m512i& v, const __m256i& half, unsigned number) {
  __m512i to = v;
  std::memcpy(reinterpret_cast<char*>(&to) + 32 * number, &half, 32);
  return to;
}
inline __m512i widen(const __m256i& low) {
  return insert_half(set1<__m512i>(uint8_t{0xAA}), low, 0);  // the upper half is undefined
}

inline __m512i gather(const __m512i& index, const void* base, unsigned scale) {
  const Lanes<int32_t, __m512i> x(index);
  Lanes<int32_t, __m512i> to;
  for (unsigned i = 0; i < to.kCount; ++i) {
    std::memcpy(&to.at[i], static_cast<const char*>(base) + int64_t{x.at[i]} * scale, 4);
  }
  return to.vector();
}

}  // namespace penstok::kernel::avx512::model

#define M_ ::penstok::kernel::avx512::model::
#define _mm512_loadu_si512(p) M_ load<__m512i>(p)
#define _mm512_load_si512(p) M_ load<__m512i>(p)
#define _mm512_storeu_si512(p, v) (void)(*reinterpret_cast<__m512i_u*>(p) = (v))
#define _mm512_setzero_si512() M_ set1<__m512i>(int8_t{0})
#define _mm512_set1_epi8(x) M_ set1<__m512i>(static_cast<int8_t>(x))
#define _mm512_set1_epi16(x) M_ set1<__m512i>(static_cast<int16_t>(x))
#define _mm512_set1_epi32(x) M_ set1<__m512i>(static_cast<int32_t>(x))
#define _mm512_set1_epi64(x) M_ set1<__m512i>(static_cast<int64_t>(x))
#define _mm512_broadcastw_epi16(v) M_ set1<__m512i>(M_ Lanes<int16_t, __m128i>(v).at[0])
#define _mm512_movepi8_mask(v) M_ mask_of<int8_t>(v, v, [](int8_t x, int8_t) { return x < 0; })
#define _mm512_test_epi8_mask(a, b) \
  M_ mask_of<uint8_t>(a, b, [](int x, int y) { return (x & y) != 0; })
#define _mm512_mask_test_epi8_mask(m, a, b) ((m) & _mm512_test_epi8_mask(a, b))
#define _mm512_cmpeq_epi8_mask(a, b) M_ equal<uint8_t>(a, b)
#define _mm512_cmpge_epu8_mask(a, b) M_ mask_of<uint8_t>(a, b, [](int x, int y) { return x >= y; })
#define _mm512_cmple_epu8_mask(a, b) M_ mask_of<uint8_t>(a, b, [](int x, int y) { return x <= y; })
#define _mm512_cmpge_epu64_mask(a, b) \
  static_cast<__mmask8>( \
      M_ mask_of<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x >= y; }))
#define _mm512_cmpneq_epi16_mask(a, b) M_ not_equal<uint16_t>(a, b)
#define _mm512_mask_cmpeq_epi16_mask(m, a, b) ((m) & M_ equal<uint16_t>(a, b))
#define _mm512_permutexvar_epi8(i, t) M_ look_up<uint8_t>(i, t, t)
#define _mm512_permutex2var_epi8(a, i, b) M_ look_up<uint8_t>(i, a, b)
#define _mm512_maskz_compress_epi8(m, v) M_ compress<uint8_t>(M_ set1<__m512i>(int8_t{0}), m, v)
#define _mm512_mask_compress_epi16(o, m, v) M_ compress<uint16_t>(o, m, v)
#define _mm512_mask_mov_epi16(o, m, v) M_ blend<uint16_t>(o, m, v)
#define _mm512_mask_set1_epi16(o, m, x) M_ blend<uint16_t>(o, m, _mm512_set1_epi16(x))
#define _mm512_add_epi32(a, b) M_ each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x + y; })
#define _mm512_and_si512(a, b) M_ each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x & y; })
#define _mm512_or_si512(a, b) M_ each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x | y; })
#define _mm512_slli_epi32(v, n) \
  M_ each<uint32_t>(v, v, [](uint32_t x, uint32_t) { return x << (n); })
#define _mm512_srli_epi32(v, n) \
  M_ each<uint32_t>(v, v, [](uint32_t x, uint32_t) { return x >> (n); })
#define _mm512_xor_si512(a, b) M_ each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x ^ y; })
#define _mm512_mullo_epi64(a, b) \
  M_ each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x * y; })
#define _mm512_sllv_epi64(a, b) \
  M_ each<uint64_t>(a, b, [](uint64_t x, uint64_t n) { return n < 64 ? x << n : 0; })
#define _mm512_slli_epi64(v, n) \
  M_ each<uint64_t>(v, v, [](uint64_t x, uint64_t) { return x << (n); })
#define _mm512_srli_epi64(v, n) \
  M_ each<uint64_t>(v, v, [](uint64_t x, uint64_t) { return x >> (n); })
#define _mm512_cvtepu8_epi32(v) M_ convert<__m512i, uint32_t, uint8_t>(v)
#define _mm512_cvtepi32_epi16(v) M_ convert<__m256i, uint16_t, uint32_t>(v)
#define _mm512_cvtepu32_epi64(v) M_ convert<__m512i, uint64_t, uint32_t>(v)
#define _mm512_cvtepi64_epi16(v) M_ convert<__m128i, uint16_t, uint64_t>(v)
#define _mm512_cvtepi64_epi32(v) M_ convert<__m256i, uint32_t, uint64_t>(v)
#define _mm512_castsi512_si128(v) M_ part<__m128i>(v, 0)
#define _mm512_castsi512_si256(v) M_ part<__m256i>(v, 0)
#define _mm512_castsi256_si512(v) M_ widen(v)
#define _mm512_extracti32x4_epi32(v, n) M_ part<__m128i>(v, n)
#define _mm512_extracti64x4_epi64(v, n) M_ part<__m256i>(v, n)
#define _mm512_inserti64x4(v, h, n) M_ insert_half(v, h, n)
#define _mm512_i32gather_epi32(i, p, s) M_ gather(i, p, s)
#define _mm256_cmpeq_epi64_mask(a, b) M_ equal<uint64_t>(a, b)
#define _mm256_cmpneq_epi16_mask(a, b) M_ not_equal<uint16_t>(a, b)
#define _mm256_mask_cmpeq_epi16_mask(m, a, b) ((m) & M_ equal<uint16_t>(a, b))
#define _mm256_mask_compress_epi16(o, m, v) M_ compress<uint16_t>(o, m, v)
#define _mm256_maskz_compress_epi32(m, v) M_ compress<uint32_t>(M_ set1<__m256i>(int8_t{0}), m, v)
#define _mm256_mask_mov_epi16(o, m, v) M_ blend<uint16_t>(o, m, v)
#define _mm256_mask_set1_epi16(o, m, x) M_ blend<uint16_t>(o, m, _mm256_set1_epi16(x))
