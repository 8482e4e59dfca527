// Merges very long pieces with a heap of pairs: O(n log n), whatever the text.
#pragma once

#include "bpe/state.hpp"

namespace penstok::kernel {

// Merges ids[0..count) in place, given ranks[i] of the pair (i, i + 1); returns the new count.
template <class Id>
size_t merge_heap(const MergeTables<Id>& tables, Id* ids, const Id* ranks, size_t count);

}  // namespace penstok::kernel
