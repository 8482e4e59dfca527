#include "text/id_counts.hpp"

namespace penstok::kernel {

template <class Id>
uint64_t count_ids(const Id* ids, size_t num_ids, uint32_t* tables, size_t table_size) {
  uint64_t outside = 0;
  const auto count = [&](size_t id, uint32_t* table) {
    if (id < table_size) {
      ++table[id];
    } else {
      ++outside;
    }
  };
  size_t at = 0;
  for (; at + kIdTables <= num_ids; at += kIdTables) {
    for (size_t k = 0; k < kIdTables; ++k) count(ids[at + k], tables + k * table_size);
  }
  for (; at < num_ids; ++at) count(ids[at], tables);
  return outside;
}

template uint64_t count_ids(const uint16_t*, size_t, uint32_t*, size_t);
template uint64_t count_ids(const uint32_t*, size_t, uint32_t*, size_t);

}  // namespace penstok::kernel
