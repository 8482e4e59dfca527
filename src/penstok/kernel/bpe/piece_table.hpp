// Piece -> ids for pieces seen before: a cache of fixed size that evicts and never grows.
#pragma once

#include "bpe/memory.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

constexpr unsigned kShortPiece = 16;   // bytes; longer ones are not in the first table
constexpr unsigned kMediumPiece = 31;  // the second table
constexpr unsigned kLongPiece = 252;   // the third
constexpr unsigned kLongEntries = 1024;

// The bytes of a short piece, padded with 0xFF, which valid UTF-8 never contains: so the key needs
// no length, and two keys are equal if and only if the pieces are.
struct alignas(16) PieceKey {
  uint64_t low, high;
};

// Padding rows for PieceKey, by length. The last row is for pieces that are too long: their key is
// all 0xFF, which is never stored and so never found.
struct KeyPadding {
  alignas(16) uint8_t rows[kShortPiece + 2][16];
};
constexpr KeyPadding make_key_padding() {
  KeyPadding padding{};
  for (unsigned length = 0; length < kShortPiece + 2; ++length) {
    for (unsigned i = 0; i < 16; ++i) {
      const bool inside = length <= kShortPiece && i < length;
      padding.rows[length][i] = inside ? 0x00 : 0xFF;
    }
  }
  return padding;
}
constexpr KeyPadding kKeyPadding = make_key_padding();

// Two keys are compared as four halves. For each of the 16 results two bits give the way of the
// line that matched: 0, 1, or 2 for neither. Without a branch, because hits and misses are
// unpredictable.
constexpr uint32_t make_way_of_halves() {
  uint32_t ways = 0;
  for (unsigned equal = 0; equal < 16; ++equal) {
    const unsigned way = (equal & 3) == 3 ? 0 : (equal & 12) == 12 ? 1 : 2;
    ways |= way << (2 * equal);
  }
  return ways;
}
constexpr uint32_t kWayOfHalves = make_way_of_halves();

// The ids of one piece, 7 of 16 bits or 3 of 32, and their count; or 4 to 6 of 20 bits (PackedIds).
// Longer results are marked.
template <class Id>
struct alignas(16) PieceValue {
  static constexpr unsigned kInline = 16 / sizeof(Id) - 1;
  static constexpr Id kInOverflow = kInline + 1;   // ids: the row of Scratch::overflow, how many
  static constexpr Id kNotHere = kInline + 2;      // see the other tables
  static constexpr Id kInWindows = kInline + 3;    // ids: the first of Scratch::windows, how many
  static constexpr Id kOtherScript = kInline + 4;  // to be divided at junctions; never stored
  // Indentation with GPT-2's vocabulary, which has an id for every space; only with 16 bits. ids: the
  // first, the one that all others are, how many.
  static constexpr Id kRun = kInline + 5;

  Id ids[kInline];
  Id count;  // 0: the entry is free
};

// The bytes of a PieceValue<uint32_t> that has 4 to 6 ids below 2^20: three in the lower 60 bits of
// each half, and 8 + their count above those of the second. So its `count` is kPacked or more.
struct PackedIds {
  static constexpr unsigned kMost = 6;
  static constexpr unsigned kBits = 20;
  static constexpr uint32_t kPacked = uint32_t{1} << 31;

  uint64_t halves[2];
};

// One cache line holds two pieces: a look-up costs one memory access, prefetched.
template <class Id>
struct alignas(64) PieceLine {
  PieceKey keys[2];
  PieceValue<Id> values[2];
};

// Pieces of up to 31 bytes whose ids do not fit a PieceValue; direct mapped.
template <class Id>
struct alignas(64) MediumEntry {
  static constexpr unsigned kIds = 32 / sizeof(Id) - 1;
  uint64_t key[4];  // the bytes, zeros, and the length in the last byte
  Id ids[kIds];
  Id count;
};

// Rulers (rows of one sign), indentation, long words; direct mapped.
template <class Id>
struct LongEntry {
  static constexpr unsigned kIds = 256 / sizeof(Id);
  uint16_t length;
  uint16_t count;
  uint8_t bytes[kLongPiece];
  Id ids[kIds];
};

template <class Id>
struct PieceTables {
  // `bytes` is the size of the first table; the second takes a quarter of it.
  explicit PieceTables(size_t bytes);

  Buffer short_buffer, medium_buffer, long_buffer;
  unsigned short_bits, medium_bits;
  uint32_t random = 12345;  // which of two pieces is evicted: anything cleverer measured slower

  PENSTOK_INLINE PieceLine<Id>* lines() const { return short_buffer.as<PieceLine<Id>>(); }
  PENSTOK_INLINE MediumEntry<Id>* medium() const { return medium_buffer.as<MediumEntry<Id>>(); }
  PENSTOK_INLINE LongEntry<Id>* long_entries() const { return long_buffer.as<LongEntry<Id>>(); }
};

extern template struct PieceTables<uint16_t>;
extern template struct PieceTables<uint32_t>;

}  // namespace penstok::kernel
