// Merges pieces of up to 32 bytes, with all ids and ranks in registers.
#pragma once

#include <type_traits>

#include "bpe/initial_ids.hpp"
#include "bpe/merge_plain.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

#if PENSTOK_HAS_LANES

// Merges kGroup pieces in lockstep: while one waits for a rank from memory the others proceed, and
// the only branch is "all done". Merging one at a time is a fifth slower on web text.
template <class Lanes, unsigned kGroup>
PENSTOK_INLINE void merge_lockstep(const MergeTables<uint16_t>& tables, Lanes (&ids)[kGroup],
                                   Lanes (&ranks)[kGroup]) {
  constexpr unsigned kLanes = Lanes::kLanes;
  // Each row holds the ids, and "none" before and after them, so that every lane has neighbours.
  alignas(64) uint16_t rows[kGroup][3 * kLanes];
  for (unsigned g = 0; g < kGroup; ++g) {
    rows[g][kLanes - 1] = 0xFFFF;
    rows[g][2 * kLanes] = rows[g][2 * kLanes + 1] = 0xFFFF;
  }
  for (;;) {
    Lowest lowest[kGroup];
    unsigned smallest = 0xFFFF;
    for (unsigned g = 0; g < kGroup; ++g) {
      lowest[g] = ranks[g].lowest();
      smallest = lowest[g].value < smallest ? lowest[g].value : smallest;
      // For a finished piece lane == kLanes, and the next three lines change nothing.
      ids[g].set(lowest[g].lane, lowest[g].value);
      ids[g].drop(lowest[g].lane + 1);
      ranks[g].drop(lowest[g].lane);
      ids[g].store(rows[g] + kLanes);
    }
    if (smallest == 0xFFFF) return;
    for (unsigned g = 0; g < kGroup; ++g) {
      const uint16_t* at = rows[g] + kLanes + lowest[g].lane;
      const auto merged = static_cast<uint16_t>(lowest[g].value);
      ranks[g].set(lowest[g].lane, tables.rank_of(merged, at[1]));
      ranks[g].set_before(lowest[g].lane, tables.rank_of(at[-1], merged));
    }
  }
}

#endif

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
    if constexpr (std::is_same_v<Id, uint16_t>) {
      using Lanes = std::conditional_t<kMax <= 16, Lanes16, Lanes32>;
      Lanes lanes[kPieces], ranks[kPieces];
      for (unsigned g = 0; g < kPieces; ++g) {
        const bool used = g < size;
        load_lanes(tables.byte_pairs, pieces[used ? g : 0], used ? lengths[g] : 0, lanes[g],
                   ranks[g]);
      }
      merge_lockstep(tables, lanes, ranks);
      for (unsigned g = 0; g < kPieces; ++g) {
        lanes[g].store(ids[g]);
        counts[g] = lanes[g].count();
      }
      return;
    } else {
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
    const auto with = [&](auto lanes) {
      decltype(lanes) ids[1], ranks[1];
      load_lanes(tables.byte_pairs, p, length, ids[0], ranks[0]);
      merge_lockstep(tables, ids, ranks);
      ids[0].store(out);
      return ids[0].count();
    };
    return length <= 16 ? with(Lanes16{}) : with(Lanes32{});
  }
#endif
  return merge_plain(tables, p, length, out);
}

}  // namespace penstok::kernel::PENSTOK_ISA
