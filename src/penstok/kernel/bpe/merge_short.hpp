// Merges one piece of up to 32 bytes, with all ids and ranks in registers if there are lanes.
#pragma once

#include <type_traits>

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
