// Piece -> id for frequent pieces: the first table that is searched.
//
// It has pieces of up to 7 bytes that are one token, in 8 bytes each, and stays in the second-level
// cache. Seven of ten pieces of English or code are found here.
#pragma once

#include "bpe/pair_table.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// Direct mapped. A piece is padded with 0xFF to 7 bytes and multiplied by an odd number modulo
// 2^56. That is reversible: the slot (the top bits of the product) and what is stored in it (the
// other bits) determine the piece, and the id fits beside them.
class HotTable {
 public:
  static constexpr unsigned kLongest = 7;                    // bytes
  static constexpr uint64_t kNone = uint64_t{1} << kIdBits;  // above every id
  static constexpr unsigned kBits = 14;  // 128 KB; half and twice as much are slower
  // The eighth byte is shifted out.
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull << 8;

  HotTable() {
    for (uint64_t& entry : entries_) entry = kNone;
  }

  // The number of bits of a piece that `mix` takes: 0 for pieces that are too long.
  PENSTOK_INLINE static uint32_t bits_of(uint32_t length) {
    return length <= kLongest ? 8 * length : 0;
  }
  // What a piece is stored under; for 0 bits one that is never stored. Reads 8 bytes.
  PENSTOK_INLINE static uint64_t mix(const uint8_t* p, uint32_t bits) {
    return (load64(p) | ~uint64_t{0} << bits) * kMultiplier;
  }
  // The id; kNone or more if the piece is not here.
  PENSTOK_INLINE uint64_t find(uint64_t mixed) const { return slot(mixed) ^ mixed << kBits; }
  PENSTOK_INLINE void store(uint64_t mixed, uint32_t id) { slot(mixed) = mixed << kBits | id; }
  PENSTOK_INLINE const uint64_t* entries() const { return entries_; }
  PENSTOK_INLINE bool is_free(uint64_t mixed) const { return (slot(mixed) & kNone) != 0; }

 private:
  static_assert(kBits + 8 > kIdBits, "the id and kNone must fit the bits that mixing leaves free");

  PENSTOK_INLINE const uint64_t& slot(uint64_t mixed) const {
    return entries_[mixed >> (64 - kBits)];
  }
  PENSTOK_INLINE uint64_t& slot(uint64_t mixed) { return entries_[mixed >> (64 - kBits)]; }

  uint64_t entries_[size_t{1} << kBits];
};

}  // namespace penstok::kernel
