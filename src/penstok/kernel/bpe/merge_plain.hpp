// Textbook BPE: merge the pair of lowest rank, the leftmost of equals, until no pair has a rank.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

constexpr unsigned kShortMerge = 32;  // bytes

// Merges `count` ids (1 to 32) in place, given ranks[i] of the pair (i, i + 1), and returns how
// many remain; `highest` becomes the highest rank of these merges.
template <class Id>
PENSTOK_INLINE unsigned merge_ids_plain(const MergeTables<Id>& tables, Id* ids, Id* ranks,
                                        unsigned count, Id* highest = nullptr) {
  ranks[count - 1] = kNoId<Id>;
  for (;;) {
    unsigned at = 0;
    Id best = ranks[0];
    for (unsigned i = 1; i < count; ++i) {
      at = ranks[i] < best ? i : at;
      best = ranks[i] < best ? ranks[i] : best;
    }
    if (best == kNoId<Id>) return count;
    if (highest != nullptr && best > *highest) *highest = best;
    ids[at] = best;
    --count;
    for (unsigned i = at + 1; i < count; ++i) ids[i] = ids[i + 1];
    for (unsigned i = at; i < count; ++i) ranks[i] = ranks[i + 1];
    if (at + 1 < count) ranks[at] = tables.rank_of(best, ids[at + 1]);
    if (at > 0) ranks[at - 1] = tables.rank_of(ids[at - 1], best);
  }
}

// Merges 1 to 32 ids and returns how many remain.
template <class Id>
PENSTOK_INLINE unsigned merge_initial_ids_plain(const MergeTables<Id>& tables, const Id* initial,
                                                unsigned count, Id* out) {
  Id ids[kShortMerge], ranks[kShortMerge + 1];
  std::memcpy(ids, initial, count * sizeof(Id));
  for (unsigned i = 0; i + 1 < count; ++i) ranks[i] = tables.rank_of(ids[i], ids[i + 1]);
  count = merge_ids_plain(tables, ids, ranks, count);
  std::memcpy(out, ids, count * sizeof(Id));
  return count;
}

// Merges 1 to 32 bytes and returns how many ids remain.
template <class Id>
PENSTOK_INLINE unsigned merge_plain(const MergeTables<Id>& tables, const uint8_t* p,
                                    unsigned length, Id* out, Id* highest = nullptr) {
  Id ids[kShortMerge + 1], ranks[kShortMerge + 1];
  for (unsigned i = 0; i + 1 < length; ++i) {
    const BytePair<Id>& pair = tables.byte_pair(p[i], p[i + 1]);
    ids[i] = pair.left_id;
    ranks[i] = pair.rank;
  }
  ids[length - 1] = tables.byte_id(p[length - 1]);
  const unsigned count = merge_ids_plain(tables, ids, ranks, length, highest);
  std::memcpy(out, ids, count * sizeof(Id));
  return count;
}

}  // namespace penstok::kernel
