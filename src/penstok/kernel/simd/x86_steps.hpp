// The machine-dependent steps that AVX2 and AVX-512 share: keys, their hashes, lengths.
#pragma once

#include <immintrin.h>

#include "bpe/hot_table.hpp"
#include "bpe/piece_table.hpp"
#include "bytes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

PENSTOK_INLINE PieceKey make_key(const uint8_t* p, size_t length) {
  const uint8_t* padding = kKeyPadding.rows[length <= kShortPiece ? length : kShortPiece + 1];
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i pad = _mm_load_si128(reinterpret_cast<const __m128i*>(padding));
  PieceKey key;
  _mm_store_si128(reinterpret_cast<__m128i*>(&key), _mm_or_si128(bytes, pad));
  return key;
}

PENSTOK_INLINE uint32_t hash_key(const PieceKey& key, unsigned bits) {
  const uint64_t hash = _mm_crc32_u64(_mm_crc32_u64(0, key.low), key.high);
  return static_cast<uint32_t>(hash) >> (32 - bits);
}

// HotTable::bits_of eight pieces.
PENSTOK_INLINE __m256i hot_bits_of_eight(const uint32_t* starts) {
  const auto load = [](const uint32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  const __m256i lengths = _mm256_sub_epi32(load(starts + 1), load(starts));
  const __m256i first_too_long = _mm256_set1_epi32(HotTable::kLongest + 1);
  const __m256i is_too_long =
      _mm256_cmpeq_epi32(_mm256_max_epu32(lengths, first_too_long), lengths);
  return _mm256_slli_epi32(_mm256_andnot_si256(is_too_long, lengths), 3);
}

}  // namespace penstok::kernel::PENSTOK_ISA
