// Looks up eight pieces at a time in the hot table, with AVX-512. Included by avx512.hpp.
//
// Everything but the loads is done in vectors: a piece takes 9 instructions instead of 19.
#pragma once

#include "simd/hot_pieces.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Numbers of 64 bits from eight addresses. Single loads, because the gather instruction is slow.
template <class Address>
PENSTOK_INLINE __m512i load_eight(Address at) {
  const auto two = [&](unsigned i) __attribute__((always_inline)) {
    const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(at(i)));
    const auto* high = static_cast<const double*>(at(i + 1));
    return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), high));
  };
  const auto four = [&](unsigned i) __attribute__((always_inline)) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(two(i)), two(i + 2), 1);
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(four(0)), four(4), 1);
}

PENSTOK_INLINE void store_ids(uint16_t* to, __m512i ids) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi64_epi16(ids));
}
PENSTOK_INLINE void store_ids(uint32_t* to, __m512i ids) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(ids));
}

// Like list_cold_one_by_one.
template <class Id>
PENSTOK_INLINE uint32_t* list_cold(const HotPieces<Id>& pieces, size_t from, size_t to,
                                   uint32_t* cold) {
  const auto number = [](uint64_t value) {
    return _mm512_set1_epi64(static_cast<long long>(value));
  };
  __m256i numbers = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(from)),
                                     _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  for (; from + 8 <= to; from += 8) {
    const uint32_t* const starts = pieces.starts + from;
    const __m256i bits = hot_bits_of_eight(starts);
    const __m512i text = load_eight([&](unsigned i) __attribute__((always_inline)) {
      return static_cast<const void*>(pieces.text + starts[i]);
    });
    const __m512i padding = _mm512_sllv_epi64(number(~uint64_t{0}), _mm512_cvtepu32_epi64(bits));
    const __m512i mixed =
        _mm512_mullo_epi64(_mm512_or_si512(text, padding), number(HotTable::kMultiplier));
    alignas(64) uint64_t slots[8];
    _mm512_storeu_si512(slots, _mm512_srli_epi64(mixed, 64 - HotTable::kBits));
    const __m512i entries = load_eight([&](unsigned i) __attribute__((always_inline)) {
      return static_cast<const void*>(pieces.table.entries() + slots[i]);
    });
    const __m512i ids = _mm512_xor_si512(entries, _mm512_slli_epi64(mixed, HotTable::kBits));
    store_ids(pieces.ids + from, ids);
    const __mmask8 is_cold = _mm512_cmpge_epu64_mask(ids, number(HotTable::kNone));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(cold),
                        _mm256_maskz_compress_epi32(is_cold, numbers));
    cold += count_bits(is_cold);
    numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(8));
  }
  return list_cold_one_by_one(pieces, from, to, cold);
}

}  // namespace penstok::kernel::PENSTOK_ISA
