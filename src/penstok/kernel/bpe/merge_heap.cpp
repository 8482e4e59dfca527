#include "bpe/merge_heap.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace penstok::kernel {
namespace {

// Pairs by rank, then by position. An entry is not removed when one of its halves is merged away;
// it is recognized as stale when it is popped.
class PairHeap {
 public:
  void start_with(uint32_t rank, size_t at) { entries_.push_back(entry(rank, at)); }
  void order() { std::make_heap(entries_.begin(), entries_.end(), std::greater<>()); }

  void push(uint32_t rank, size_t at) {
    entries_.push_back(entry(rank, at));
    std::push_heap(entries_.begin(), entries_.end(), std::greater<>());
  }
  bool pop(uint32_t& rank, size_t& at) {
    if (entries_.empty()) return false;
    std::pop_heap(entries_.begin(), entries_.end(), std::greater<>());
    rank = static_cast<uint32_t>(entries_.back() >> kPositionBits);
    at = entries_.back() & ((uint64_t{1} << kPositionBits) - 1);
    entries_.pop_back();
    return true;
  }

 private:
  static constexpr unsigned kPositionBits = 40;
  static uint64_t entry(uint32_t rank, size_t at) { return uint64_t{rank} << kPositionBits | at; }
  std::vector<uint64_t> entries_;
};

}  // namespace

template <class Id>
size_t merge_heap(const MergeTables<Id>& tables, Id* ids, const Id* ranks, size_t count) {
  std::vector<uint32_t> previous(count), next(count);
  PairHeap heap;
  for (size_t i = 0; i < count; ++i) {
    previous[i] = static_cast<uint32_t>(i - 1);
    next[i] = static_cast<uint32_t>(i + 1);
    if (i + 1 < count && ranks[i] != kNoId<Id>) heap.start_with(ranks[i], i);
  }
  heap.order();
  const auto push = [&](size_t at, size_t after) {
    const Id rank = tables.rank_of(ids[at], ids[after]);
    if (rank != kNoId<Id>) heap.push(rank, at);
  };
  uint32_t rank;
  size_t at;
  while (heap.pop(rank, at)) {
    const size_t after = next[at];
    if (ids[at] == kNoId<Id> || after >= count) continue;
    if (tables.rank_of(ids[at], ids[after]) != rank) continue;
    ids[at] = static_cast<Id>(rank);
    ids[after] = kNoId<Id>;
    next[at] = next[after];
    if (next[at] < count) {
      previous[next[at]] = static_cast<uint32_t>(at);
      push(at, next[at]);
    }
    if (at > 0) push(previous[at], at);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = next[i]) ids[kept++] = ids[i];
  return kept;
}

template size_t merge_heap(const MergeTables<uint16_t>&, uint16_t*, const uint16_t*, size_t);
template size_t merge_heap(const MergeTables<uint32_t>&, uint32_t*, const uint32_t*, size_t);

}  // namespace penstok::kernel
