// Steps without vectors (positions, hot pieces, keys, hashes), for the instruction sets that have
// nothing faster.
#pragma once

#include "bpe/piece_table.hpp"
#include "bytes.hpp"
#include "simd/hot_pieces.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Writes base + i for each bit i (and overwrites a few entries after them); returns their number.
PENSTOK_INLINE unsigned store_positions(uint32_t* to, uint64_t mask, uint32_t base) {
  const unsigned count = count_bits(mask);
  for (unsigned done = 0; done < count; done += 8) {
    for (unsigned i = 0; i < 8; ++i) {
      to[done + i] = base + (lowest_bit(mask | uint64_t{1} << 63));
      mask &= mask - 1;
    }
  }
  return count;
}

template <class Id>
PENSTOK_INLINE uint32_t* list_cold(const HotPieces<Id>& pieces, size_t from, size_t to,
                                   uint32_t* cold) {
  return list_cold_one_by_one(pieces, from, to, cold);
}

PENSTOK_INLINE PieceKey make_key(const uint8_t* p, size_t length) {
  const uint8_t* padding = kKeyPadding.rows[length <= kShortPiece ? length : kShortPiece + 1];
  return {load64(p) | load64(padding), load64(p + 8) | load64(padding + 8)};
}

PENSTOK_INLINE uint32_t hash_key(const PieceKey& key, unsigned bits) {
  uint64_t hash = key.low * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 32;
  hash = (hash ^ key.high) * 0xC2B2AE3D27D4EB4Full;
  hash ^= hash >> 32;
  return static_cast<uint32_t>(hash * 0xD6E8FEB86659FD93ull >> (64 - bits));
}

// Which of the two ways of a line holds the key: 0, 1, or 2 for neither.
PENSTOK_INLINE unsigned find_way(const PieceKey* keys, const PieceKey& key) {
  const bool first = keys[0].low == key.low && keys[0].high == key.high;
  const bool second = keys[1].low == key.low && keys[1].high == key.high;
  return first ? 0 : second ? 1 : 2;
}

}  // namespace penstok::kernel::PENSTOK_ISA
