// Looks pieces up in the hot table, one by one. hot_pieces_avx2.hpp and hot_pieces_avx512.hpp do it
// for eight at a time.
#pragma once

#include "bpe/hot_table.hpp"
#include "bytes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

template <class Id>
struct HotPieces {
  const HotTable& table;
  const uint8_t* text;
  const uint32_t* starts;  // piece i is text[starts[i] .. starts[i + 1])
  Id* ids;                 // of piece i; undefined if the table does not have it
};

// Sets the ids of the pieces [from, to) and writes the numbers of those that the table does not have
// to `cold` (and overwrites entries after them, as many as pieces were found); returns the position
// after the last.
template <class Id>
PENSTOK_INLINE uint32_t* list_cold_one_by_one(const HotPieces<Id>& pieces, size_t from, size_t to,
                                              uint32_t* cold) {
  constexpr size_t kStep = 64;
  for (; from < to; from += kStep) {
    const uint32_t* const starts = pieces.starts + from;
    const size_t count = to - from < kStep ? to - from : kStep;
    uint32_t bits[kStep];  // in a loop of their own: a compiler uses vectors
    for (size_t i = 0; i < count; ++i) bits[i] = HotTable::bits_of(starts[i + 1] - starts[i]);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t id = pieces.table.find(HotTable::mix(pieces.text + starts[i], bits[i]));
      pieces.ids[from + i] = static_cast<Id>(id);
      *cold = static_cast<uint32_t>(from + i);
      cold += id >= HotTable::kNone;
    }
  }
  return cold;
}

}  // namespace penstok::kernel::PENSTOK_ISA
