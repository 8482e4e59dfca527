// BPE as the textbook has it: merge the pair of lowest rank, the leftmost of equals, until none
// can.
#pragma once

#include "bytes.hpp"
#include "state.hpp"

namespace penstock::kernel {

constexpr unsigned kShortMerge = 32;  // bytes

// Merges 1 to 32 bytes and returns how many ids are left.
template <class Id>
PENSTOCK_INLINE unsigned merge_plain(const MergeTables<Id>& tables, const uint8_t* p,
                                     unsigned length, Id* out) {
  Id ids[kShortMerge + 1], ranks[kShortMerge + 1];
  unsigned count = length;
  for (unsigned i = 0; i + 1 < count; ++i) {
    const BytePair<Id>& pair = tables.byte_pair(p[i], p[i + 1]);
    ids[i] = pair.left_id;
    ranks[i] = pair.rank;
  }
  ids[count - 1] = tables.byte_id(p[count - 1]);
  ranks[count - 1] = kNoId<Id>;
  for (;;) {
    unsigned at = 0;
    Id best = ranks[0];
    for (unsigned i = 1; i < count; ++i) {
      at = ranks[i] < best ? i : at;
      best = ranks[i] < best ? ranks[i] : best;
    }
    if (best == kNoId<Id>) break;
    ids[at] = best;
    --count;
    for (unsigned i = at + 1; i < count; ++i) ids[i] = ids[i + 1];
    for (unsigned i = at; i < count; ++i) ranks[i] = ranks[i + 1];
    if (at + 1 < count) ranks[at] = tables.rank_of(best, ids[at + 1]);
    if (at > 0) ranks[at - 1] = tables.rank_of(ids[at - 1], best);
  }
  std::memcpy(out, ids, count * sizeof(Id));
  return count;
}

}  // namespace penstock::kernel
