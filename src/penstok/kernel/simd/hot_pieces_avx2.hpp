// Looks up eight pieces at a time in the hot table, with AVX2. Included by avx2.hpp, after
// `kBitIndexes`.
//
// Everything but the loads is done in vectors: a piece takes 12 instructions instead of 19.
#pragma once

#include "simd/hot_pieces.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Numbers of 64 bits from four addresses.
template <class Address>
PENSTOK_INLINE __m256i load_four(Address at) {
  const auto two = [&](unsigned i) __attribute__((always_inline)) {
    const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(at(i)));
    return _mm_loadh_pd(_mm_castsi128_pd(low), static_cast<const double*>(at(i + 1)));
  };
  return _mm256_castpd_si256(_mm256_insertf128_pd(_mm256_castpd128_pd256(two(0)), two(2), 1));
}

// HotTable::find(HotTable::mix(p, bits)) for pieces 0, 1, 4 and 5 of those that `starts` has.
template <class Id>
PENSTOK_INLINE __m256i find_four(const HotPieces<Id>& pieces, const uint32_t* starts,
                                 __m256i bits) {
  const __m256i text = load_four([&](unsigned i) __attribute__((always_inline)) {
    return static_cast<const void*>(pieces.text + starts[i + i / 2 * 2]);
  });
  const __m256i padded = _mm256_or_si256(text, _mm256_sllv_epi64(_mm256_set1_epi64x(-1), bits));
  // AVX2 cannot multiply 64-bit numbers: this takes three 32-bit multiplications.
  constexpr uint64_t kBy = HotTable::kMultiplier;
  const __m256i low = _mm256_set1_epi64x(static_cast<long long>(kBy & 0xFFFFFFFF));
  const __m256i high = _mm256_set1_epi64x(static_cast<long long>(kBy >> 32));
  const __m256i upper = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(padded, 32), low),
                                         _mm256_mul_epu32(padded, high));
  const __m256i mixed =
      _mm256_add_epi64(_mm256_mul_epu32(padded, low), _mm256_slli_epi64(upper, 32));
  alignas(32) uint64_t slots[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(slots),
                     _mm256_srli_epi64(mixed, 64 - HotTable::kBits));
  const __m256i entries = load_four([&](unsigned i) __attribute__((always_inline)) {
    return static_cast<const void*>(pieces.table.entries() + slots[i]);
  });
  return _mm256_xor_si256(entries, _mm256_slli_epi64(mixed, HotTable::kBits));
}

PENSTOK_INLINE void store_ids(uint16_t* to, __m256i ids) {
  const __m256i lower = _mm256_and_si256(ids, _mm256_set1_epi32(0xFFFF));
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packus_epi32(_mm256_castsi256_si128(lower), _mm256_extracti128_si256(lower, 1)));
}
PENSTOK_INLINE void store_ids(uint32_t* to, __m256i ids) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ids);
}

// Like list_cold_one_by_one.
template <class Id>
PENSTOK_INLINE uint32_t* list_cold(const HotPieces<Id>& pieces, size_t from, size_t to,
                                   uint32_t* cold) {
  __m256i numbers = _mm256_set1_epi32(static_cast<int>(from));
  for (; from + 8 <= to; from += 8) {
    const uint32_t* const starts = pieces.starts + from;
    const __m256i bits = hot_bits_of_eight(starts);
    const __m256i zero = _mm256_setzero_si256();
    // Both halves of a register are unpacked, and shuffled, on their own: hence 0, 1, 4, 5 and 2, 3,
    // 6, 7, which are in order again after that.
    const __m256i some = find_four(pieces, starts, _mm256_unpacklo_epi32(bits, zero));
    const __m256i others = find_four(pieces, starts + 2, _mm256_unpackhi_epi32(bits, zero));
    const __m256 a = _mm256_castsi256_ps(some), b = _mm256_castsi256_ps(others);
    const __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    const __m256i high = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    store_ids(pieces.ids + from, low);
    const __m256i above_ids = _mm256_or_si256(high, _mm256_srli_epi32(low, kIdBits));
    const __m256i is_hot = _mm256_cmpeq_epi32(above_ids, zero);
    const int is_cold = _mm256_movemask_ps(_mm256_castsi256_ps(is_hot)) ^ 0xFF;
    const __m128i indexes =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kBitIndexes.rows[is_cold]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(cold),
                        _mm256_add_epi32(_mm256_cvtepu8_epi32(indexes), numbers));
    cold += count_bits(static_cast<uint64_t>(is_cold));
    numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(8));
  }
  return list_cold_one_by_one(pieces, from, to, cold);
}

}  // namespace penstok::kernel::PENSTOK_ISA
