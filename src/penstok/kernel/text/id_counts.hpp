// Counts how often each id occurs.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

constexpr size_t kIdTables = 3;

// Adds how often each id below `table_size` occurs to kIdTables tables of that size, one after the
// other, and returns how many ids are not below it. The sum of the tables is the count: neighbouring
// ids are counted in different ones, so that a repeated id does not wait for its last count.
template <class Id>
uint64_t count_ids(const Id* ids, size_t num_ids, uint32_t* tables, size_t table_size);

}  // namespace penstok::kernel
