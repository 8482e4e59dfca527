// The lowest of up to 64 keys with AVX2, for merging 32-bit ids (bpe/merge_wide_wave.hpp). Included
// by avx2.hpp and avx512.hpp.
#pragma once

namespace penstok::kernel::PENSTOK_ISA {

// A key is (rank, lane), so that the lowest key is the leftmost pair of lowest rank.
constexpr unsigned kLaneBits = 6;
constexpr unsigned kLaneMask = (1u << kLaneBits) - 1;
constexpr uint32_t kNoKey = ~uint32_t{0} << kLaneBits;  // this and all above: no pair
static_assert(kIdBits + kLaneBits < 32, "a key must stay below kNoKey");

PENSTOK_INLINE uint32_t make_merge_key(uint32_t rank, unsigned lane) {
  return rank << kLaneBits | lane;  // kNoMerge gives kNoKey or above
}

template <unsigned kLanes>
PENSTOK_INLINE uint32_t lowest_key(const uint32_t* keys) {
  const auto* at = reinterpret_cast<const __m256i*>(keys);
  __m256i lowest = _mm256_min_epu32(_mm256_load_si256(at), _mm256_load_si256(at + 1));
  for (unsigned i = 2; i < kLanes / 8; i += 2) {
    lowest = _mm256_min_epu32(
        lowest, _mm256_min_epu32(_mm256_load_si256(at + i), _mm256_load_si256(at + i + 1)));
  }
  __m128i four = _mm_min_epu32(_mm256_castsi256_si128(lowest), _mm256_extracti128_si256(lowest, 1));
  four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

// Sets all keys from number `from` on to "no pair".
template <unsigned kLanes>
PENSTOK_INLINE void clear_keys(uint32_t* keys, unsigned from) {
  const __m256i last_kept = _mm256_set1_epi32(static_cast<int>(from) - 1);
  __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (unsigned i = 0; i < kLanes; i += 8) {
    auto* const at = reinterpret_cast<__m256i*>(keys + i);
    const __m256i cleared = _mm256_cmpgt_epi32(numbers, last_kept);
    _mm256_store_si256(at, _mm256_or_si256(_mm256_load_si256(at), cleared));
    numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(8));
  }
}

}  // namespace penstok::kernel::PENSTOK_ISA
