// The machine-dependent steps that AVX2 and AVX-512 share: keys and their hashes.
#pragma once

#include <immintrin.h>

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

}  // namespace penstok::kernel::PENSTOK_ISA
