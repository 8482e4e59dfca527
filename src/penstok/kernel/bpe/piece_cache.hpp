// Finds and stores pieces in the tables of piece_table.hpp.
#pragma once

#include "bpe/piece_table.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Free entries of a new table are zeros, and so is the key of a piece of 16 NUL bytes, which must not
// find one. Only its own line needs another key in free entries: one that no piece has.
template <class Id>
PENSTOK_INLINE void reserve_key_of_nuls(PieceTables<Id>& tables) {
  PieceLine<Id>& line = tables.lines()[hash_key(PieceKey{0, 0}, tables.short_bits)];
  line.keys[0] = line.keys[1] = PieceKey{0xFF, 0};
}

// Stores a value under a key in its line, in a free entry or over a random one.
template <class Id>
PENSTOK_INLINE void store_short(PieceTables<Id>& tables, uint32_t line_number, const PieceKey& key,
                                const PieceValue<Id>& value) {
  PieceLine<Id>& line = tables.lines()[line_number];
  if (find_way(line.keys, key) < 2) return;  // twice in one batch
  tables.random = tables.random * 1664525u + 1013904223u;
  unsigned way = tables.random >> 31;
  if (line.values[1].count == 0) way = 1;
  if (line.values[0].count == 0) way = 0;
  line.keys[way] = key;
  line.values[way] = value;
}

// The ids as PackedIds; false if they do not fit. Reads PackedIds::kMost ids.
PENSTOK_INLINE bool pack(const uint32_t* ids, size_t count, PieceValue<uint32_t>& value) {
  constexpr unsigned kBits = PackedIds::kBits;
  if (count > PackedIds::kMost) return false;
  uint32_t all = 0;
  for (size_t i = 0; i < count; ++i) all |= ids[i];
  if (all >> kBits != 0) return false;
  const auto three = [](const uint32_t* from) {
    constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    return (from[0] & kMask) | (from[1] & kMask) << kBits | (from[2] & kMask) << (2 * kBits);
  };
  const PackedIds packed{{three(ids), three(ids + 3) | uint64_t{8 + count} << (3 * kBits)}};
  std::memcpy(&value, &packed, sizeof value);
  return true;
}

PENSTOK_INLINE bool is_packed(const PieceValue<uint32_t>& value) {
  return value.count >= PackedIds::kPacked;
}
PENSTOK_INLINE bool is_packed(const PieceValue<uint16_t>&) { return false; }

// Writes PackedIds::kMost ids and returns the position after those that are the value's own.
PENSTOK_INLINE uint32_t* unpack(const PieceValue<uint32_t>& value, uint32_t* out) {
  constexpr unsigned kBits = PackedIds::kBits;
  PackedIds packed;
  std::memcpy(&packed, &value, sizeof packed);
  for (unsigned i = 0; i < PackedIds::kMost; ++i) {
    const uint64_t id = packed.halves[i / 3] >> (kBits * (i % 3)) & bits_below(kBits);
    out[i] = static_cast<uint32_t>(id);
  }
  return out + (packed.halves[1] >> (3 * kBits) & 7);
}
PENSTOK_INLINE uint16_t* unpack(const PieceValue<uint16_t>&, uint16_t* out) { return out; }

// Are all ids but the first the same? Not inlined because it is rare.
template <class Id>
inline __attribute__((noinline)) bool is_run(const Id* ids, size_t count) {
  Id different = 0;
  for (size_t i = 2; i < count; ++i) different |= static_cast<Id>(ids[i] ^ ids[1]);
  return different == 0;
}

template <class Id>
PENSTOK_INLINE PieceValue<Id> run_value(Id first, Id others, size_t count) {
  PieceValue<Id> value{};
  value.ids[0] = first;
  value.ids[1] = others;
  value.ids[2] = static_cast<Id>(count);
  value.count = PieceValue<Id>::kRun;
  return value;
}

// Writes 33 ids, whatever the length of the run, and returns the position after its last.
template <class Id>
PENSTOK_INLINE Id* put_run(const PieceValue<Id>& value, Id* out) {
  const Id repeated = value.ids[1];
  out[0] = value.ids[0];
  for (unsigned i = 1; i <= 32; ++i) out[i] = repeated;
  static_assert(kMediumPiece <= 32, "a run has at most as many ids as a medium piece has bytes");
  return out + value.ids[2];
}

// Reads 16 bytes of ids, whatever their count, as two numbers: copying only `count` took a chain of
// branches, and setting `count` after a copy made GCC 12 take the value apart, id by id.
// Packed ids take 24 bytes.
template <class Id>
PENSTOK_INLINE PieceValue<Id> short_value(const Id* ids, size_t count) {
  constexpr unsigned kIdsBits = 64 - 8 * sizeof(Id);  // the ids beside `count`
  const uint64_t stored = count <= PieceValue<Id>::kInline ? count : PieceValue<Id>::kNotHere;
  uint64_t words[2] = {
      load64(ids), (load64(ids + 8 / sizeof(Id)) & bits_below(kIdsBits)) | stored << kIdsBits};
  PieceValue<Id> value;
  if constexpr (sizeof(Id) == 4) {
    if (count > PieceValue<Id>::kInline && pack(ids, count, value)) return value;
  }
  if constexpr (sizeof(Id) == 2) {
    if (PENSTOK_UNLIKELY(count > PieceValue<Id>::kInline) && is_run(ids, count)) {
      words[0] = (words[0] & bits_below(32)) | uint64_t{count} << 32;
      words[1] = uint64_t{PieceValue<Id>::kRun} << kIdsBits;
    }
  }
  std::memcpy(&value, words, sizeof value);
  return value;
}

struct MediumKey {
  uint64_t words[4];
};

// The piece's bytes, zeros, and its length (1 to 31) in the last byte. Reads 32 bytes.
PENSTOK_INLINE MediumKey make_medium_key(const uint8_t* p, size_t length) {
  MediumKey key;
  for (unsigned word = 0; word < 4; ++word) {
    const size_t begin = 8 * word;
    const size_t bytes = length <= begin ? 0 : length - begin;
    key.words[word] = load64(p + begin) & bits_below(8 * bytes);
  }
  key.words[3] |= uint64_t{length} << 56;
  return key;
}

// Where the second table would have a piece.
template <class Id>
PENSTOK_INLINE uint32_t medium_number(const PieceTables<Id>& tables, const MediumKey& key) {
  uint64_t hash = key.words[0] * 0x9E3779B97F4A7C15ull + key.words[1] * 0xC2B2AE3D27D4EB4Full;
  hash ^= hash >> 31;
  hash = hash * 0xD6E8FEB86659FD93ull + key.words[2] * 0xA0761D6478BD642Full;
  hash ^= hash >> 29;
  hash = (hash + key.words[3] * 0xE7037ED1A0B428DBull) * 0xBF58476D1CE4E5B9ull;
  return static_cast<uint32_t>(hash >> (64 - tables.medium_bits));
}

template <class Id>
PENSTOK_INLINE MediumEntry<Id>& medium_entry(const PieceTables<Id>& tables, const MediumKey& key) {
  return tables.medium()[medium_number(tables, key)];
}

PENSTOK_INLINE bool is_equal(const uint64_t (&a)[4], const uint64_t (&b)[4]) {
  return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
}

template <class Id>
PENSTOK_INLINE bool holds(const MediumEntry<Id>& entry, const MediumKey& key) {
  return is_equal(entry.key, key.words);
}

template <class Id>
PENSTOK_INLINE void store_medium(MediumEntry<Id>& entry, const MediumKey& key, const Id* ids,
                                 size_t count) {
  if (count > MediumEntry<Id>::kIds) return;
  std::memcpy(entry.key, key.words, sizeof entry.key);
  std::memcpy(entry.ids, ids, count * sizeof(Id));
  entry.count = static_cast<Id>(count);
}

template <class Id>
PENSTOK_INLINE LongEntry<Id>& long_entry(const PieceTables<Id>& tables, const uint8_t* p,
                                         size_t length) {  // length >= 8
  uint64_t hash = length;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  };
  for (size_t i = 0; i + 8 <= length; i += 8) mix(load64(p + i));
  mix(load64(p + length - 8));
  return tables.long_entries()[hash * 0xBF58476D1CE4E5B9ull >> 54];
}
static_assert(kLongEntries == 1u << (64 - 54), "long_entry takes the top 10 bits");

template <class Id>
PENSTOK_INLINE bool holds(const LongEntry<Id>& entry, const uint8_t* p, size_t length) {
  return entry.length == length && std::memcmp(entry.bytes, p, length) == 0;
}

template <class Id>
PENSTOK_INLINE void store_long(LongEntry<Id>& entry, const uint8_t* p, size_t length,
                               const Id* ids, size_t count) {
  if (count > LongEntry<Id>::kIds) return;
  entry.length = static_cast<uint16_t>(length);
  entry.count = static_cast<uint16_t>(count);
  std::memcpy(entry.bytes, p, length);
  std::memcpy(entry.ids, ids, count * sizeof(Id));
}

}  // namespace penstok::kernel::PENSTOK_ISA
