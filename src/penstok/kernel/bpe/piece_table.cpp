#include "bpe/piece_table.hpp"

namespace penstok::kernel {

template <class Id>
PieceTables<Id>::PieceTables(size_t bytes) {
  short_bits = 4;
  while ((sizeof(PieceLine<Id>) << (short_bits + 1)) <= bytes && short_bits < 30) ++short_bits;
  medium_bits = short_bits - 2;
  short_buffer = Buffer(sizeof(PieceLine<Id>) << short_bits);
  medium_buffer = Buffer(sizeof(MediumEntry<Id>) << medium_bits);
  long_buffer = Buffer(sizeof(LongEntry<Id>) * kLongEntries);
}

template struct PieceTables<uint16_t>;
template struct PieceTables<uint32_t>;

}  // namespace penstok::kernel
