// Merges pieces of up to 32 bytes, with all ids and ranks in registers: one, or a few in lockstep.
#pragma once

#include <type_traits>

#include "bpe/initial_ids.hpp"
#include "bpe/merge_plain.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

#if PENSTOK_HAS_LANES

// One piece of 1 to Lanes::kLanes bytes.
template <class Lanes>
PENSTOK_INLINE unsigned merge_lanes(const MergeTables<uint16_t>& tables, const uint8_t* p,
                                    unsigned length, uint16_t* out) {
  constexpr unsigned kLanes = Lanes::kLanes;
  Lanes ids, ranks;
  load_lanes(tables.byte_pairs, p, length, ids, ranks);
  // The row holds the ids, and "none" before and after them, so that every lane has neighbours.
  alignas(64) uint16_t row[3 * kLanes];
  row[kLanes - 1] = row[2 * kLanes] = 0xFFFF;
  for (;;) {
    const Lowest lowest = ranks.lowest();
    if (lowest.value == 0xFFFF) break;
    ids.set(lowest.lane, lowest.value);
    ids.drop(lowest.lane + 1);
    ids.store(row + kLanes);
    const uint16_t* at = row + kLanes + lowest.lane;
    ranks.drop(lowest.lane);
    ranks.set(lowest.lane, tables.rank_of(static_cast<uint16_t>(lowest.value), at[1]));
    ranks.set_before(lowest.lane, tables.rank_of(at[-1], static_cast<uint16_t>(lowest.value)));
  }
  ids.store(out);
  return ids.count();
}

#endif

// With 16-bit ids whole batches are merged by merge_wave.hpp, if there are lanes.
template <class Id>
constexpr bool kMergesInWaves = PENSTOK_HAS_LANES && sizeof(Id) == 2;

// A few pieces of up to kMax bytes that are merged together.
template <class Id, unsigned kMax>
struct MergeGroup {
  static constexpr unsigned kPieces = 4;

  const uint8_t* pieces[kPieces];
  unsigned lengths[kPieces];
  unsigned tags[kPieces];  // the caller's
  unsigned size = 0;
  alignas(64) Id ids[kPieces][kShortMerge];
  unsigned counts[kPieces];
  // With 32-bit ids a piece may start from characters instead of bytes; a count of 0: it does not.
  InitialIds<Id> initial[sizeof(Id) == 4 ? kPieces : 1];

  PENSTOK_INLINE bool is_full() const { return size == kPieces; }

  // Adds a piece; a full group must be merged before the next one.
  PENSTOK_INLINE void add(const uint8_t* piece, size_t length, unsigned tag) {
    pieces[size] = piece;
    lengths[size] = static_cast<unsigned>(length);
    tags[size] = tag;
    if constexpr (sizeof(Id) == 4) initial[size].count = 0;
    ++size;
  }
  PENSTOK_INLINE void add(const InitialIds<Id>& from, unsigned tag) {
    initial[size] = from;
    tags[size] = tag;
    ++size;
  }

  PENSTOK_INLINE void merge(const MergeTables<Id>& tables) {
#if PENSTOK_HAS_LANES
    if constexpr (sizeof(Id) == 4) {
      using Keys = MergeKeys<kMax <= 16 ? 2 : 4>;
      WidePiece wide[kPieces];
      Keys keys[kPieces];
      for (unsigned g = 0; g < kPieces; ++g) {
        const bool used = g < size;
        keys[g] = used && initial[g].count > 0
                      ? load_wide_ids<Keys>(tables, initial[g].ids, initial[g].count,
                                            initial[g].joints, wide[g])
                      : load_wide<Keys>(tables, pieces[used ? g : 0], used ? lengths[g] : 0,
                                        wide[g]);
      }
      merge_lockstep_wide(tables, wide, keys);
      for (unsigned g = 0; g < size; ++g) counts[g] = store_wide(wide[g], ids[g]);
      return;
    }
#endif
    for (unsigned g = 0; g < size; ++g) {
      counts[g] = sizeof(Id) == 4 && initial[g].count > 0
                      ? merge_initial_ids_plain(tables, initial[g].ids, initial[g].count, ids[g])
                      : merge_plain(tables, pieces[g], lengths[g], ids[g]);
    }
  }
};

// One piece of 1 to 32 bytes.
template <class Id>
PENSTOK_INLINE unsigned merge_short(const MergeTables<Id>& tables, const uint8_t* p,
                                    unsigned length, Id* out) {
#if PENSTOK_HAS_LANES
  if constexpr (std::is_same_v<Id, uint16_t>) {
    if (length <= Lanes16::kLanes) return merge_lanes<Lanes16>(tables, p, length, out);
    return merge_lanes<Lanes32>(tables, p, length, out);
  }
#endif
  return merge_plain(tables, p, length, out);
}

}  // namespace penstok::kernel::PENSTOK_ISA
