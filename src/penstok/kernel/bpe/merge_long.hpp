// Merges pieces of more than 32 bytes: all occurrences of the lowest rank in one pass.
#pragma once

#include "bpe/merge_heap.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// The loops over ranks take this many per step, which compilers vectorize.
constexpr size_t kStep = 64;

template <class Id>
PENSTOK_INLINE Id lowest_rank(const Id* ranks, size_t count) {
  Id lowest[kStep];
  std::memset(lowest, 0xFF, sizeof lowest);
  for (size_t at = 0; at < count; at += kStep) {
    for (size_t i = 0; i < kStep; ++i) {
      lowest[i] = ranks[at + i] < lowest[i] ? ranks[at + i] : lowest[i];
    }
  }
  Id best = kNoId<Id>;
  for (Id rank : lowest) best = rank < best ? rank : best;
  return best;
}

struct Occurrences {
  size_t first, count;
};

template <class Id>
PENSTOK_INLINE Occurrences find_rank(const Id* ranks, size_t count, Id rank) {
  Occurrences found{count, 0};
  for (size_t at = 0; at < count; at += kStep) {
    Id here = 0;
    for (size_t i = 0; i < kStep; ++i) here = static_cast<Id>(here + (ranks[at + i] == rank));
    if (here == 0) continue;
    if (found.count == 0) {
      found.first = at;
      while (ranks[found.first] != rank) ++found.first;
    }
    found.count += here;
  }
  return found;
}

// Merges the one pair (at, at + 1), which has the given rank.
template <class Id>
PENSTOK_INLINE size_t merge_one(const MergeTables<Id>& tables, Id* ids, Id* ranks, size_t count,
                                size_t at, Id rank) {
  ids[at] = rank;
  std::memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof(Id));
  std::memmove(ranks + at, ranks + at + 1, (count - at - 1) * sizeof(Id));
  --count;
  ranks[count] = kNoId<Id>;
  if (at + 1 < count) ranks[at] = tables.rank_of(rank, ids[at + 1]);
  if (at > 0) ranks[at - 1] = tables.rank_of(ids[at - 1], rank);
  return count;
}

// Merges every pair of the given rank from left to right, starting at `first`. Exact if the pairs
// that such a merge creates have higher ranks (proof 3 of vocabulary.hpp).
template <class Id>
PENSTOK_INLINE size_t merge_all(const MergeTables<Id>& tables, Id* ids, Id* ranks, size_t count,
                                size_t first, Id rank) {
  size_t to = first;
  for (size_t from = first; from < count; ++to) {
    const bool merges = ranks[from] == rank;
    ids[to] = merges ? rank : ids[from];
    ranks[to] = merges ? kRedo<Id> : ranks[from];
    from += merges ? 2 : 1;
  }
  for (size_t i = to; i < count; ++i) ranks[i] = kNoId<Id>;
  for (size_t i = to; i-- > first;) {
    if (ranks[i] != kRedo<Id>) continue;
    ranks[i] = i + 1 < to ? tables.rank_of(rank, ids[i + 1]) : kNoId<Id>;
    if (i > 0 && ranks[i - 1] != kRedo<Id>) ranks[i - 1] = tables.rank_of(ids[i - 1], rank);
  }
  return to;
}

// Above this length a pass must merge at least one pair in kFewest, otherwise the heap takes over:
// so the work is bounded by that of 512 passes, whatever the text.
constexpr size_t kPassesOnly = 2048;
constexpr size_t kFewest = 512;

// ranks[count - 1 .. count + kStep) must be kNoId.
template <class Id>
inline size_t merge_passes(const MergeTables<Id>& tables, Id* ids, Id* ranks, size_t count) {
  for (;;) {
    const Id rank = lowest_rank(ranks, count);
    if (rank == kNoId<Id>) return count;
    Occurrences found = find_rank(ranks, count, rank);
    if (found.count > 1 && tables.may_fall(rank)) found.count = 1;
    if (count > kPassesOnly && found.count < count / kFewest) {
      return merge_heap(tables, ids, ranks, count);
    }
    count = found.count == 1 ? merge_one(tables, ids, ranks, count, found.first, rank)
                             : merge_all(tables, ids, ranks, count, found.first, rank);
  }
}

// Needs 2 ids of working memory per byte (the heap: about 16 bytes more per remaining id).
template <class Id>
inline size_t merge_long(const MergeTables<Id>& tables, Workspace& workspace, const uint8_t* p,
                         size_t length, Id* out) {
  const size_t room = length + 2 * kStep;
  Id* ids = reinterpret_cast<Id*>(workspace.reserve(2 * room * sizeof(Id)));
  Id* ranks = ids + room;
  for (size_t i = 0; i + 1 < length; ++i) {
    const BytePair<Id>& pair = tables.byte_pair(p[i], p[i + 1]);
    ids[i] = pair.left_id;
    ranks[i] = pair.rank;
  }
  ids[length - 1] = tables.byte_id(p[length - 1]);
  for (size_t i = length - 1; i < length + kStep; ++i) ranks[i] = kNoId<Id>;
  const size_t count = merge_passes(tables, ids, ranks, length);
  std::memcpy(out, ids, count * sizeof(Id));
  return count;
}

}  // namespace penstok::kernel::PENSTOK_ISA
