// Byte classes as pairs of small tables, for instruction sets that look up 16 entries at once.
#pragma once

#include "bytes.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel {

// The class of a byte from two tables of 16: the bits that the entry for its low half and the entry
// for its high half have in common. Each bit is one (set of high halves) x (set of low halves).
struct HalfByteTables {
  alignas(16) uint8_t low[16], high[16];
};

// Bits 0 and 1: letters; 2: numbers; 3 and 4: white space (4: the blank alone); 5: apostrophe;
// 6: carriage return and line feed.
constexpr HalfByteTables make_ascii_tables() {
  HalfByteTables tables{};
  for (unsigned low = 0; low < 16; ++low) {
    tables.low[low] = static_cast<uint8_t>((low >= 1 ? 1 : 0) | (low <= 10 ? 2 : 0) |
                                           (low <= 9 ? 4 : 0) | (low >= 9 && low <= 13 ? 8 : 0) |
                                           (low == 0 ? 16 : 0) | (low == 7 ? 32 : 0) |
                                           (low == 10 || low == 13 ? 64 : 0));
  }
  tables.high[0] = 8 | 64;
  tables.high[2] = 16 | 32;
  tables.high[3] = 4;
  tables.high[4] = tables.high[6] = 1;
  tables.high[5] = tables.high[7] = 2;
  return tables;
}

// The kinds of lead bytes (unicode_classes.inc). Letters with a high half of C, E, D: bits 0, 1, 2;
// mixed ones with a high half of C, D, E, F: bits 4, 5, 6, 7.
constexpr HalfByteTables make_lead_tables() {
  HalfByteTables tables{};
  for (unsigned high = 0xC; high <= 0xF; ++high) {
    const unsigned letter_bit = high == 0xC ? 0 : high == 0xD ? 2 : 1;
    const unsigned mixed_bit = high - 0xC + 4;
    for (unsigned low = 0; low < 16; ++low) {
      const uint8_t kind = unicode_tables::kLeadKind[(high - 0xC) * 16 + low];
      if (kind == kLeadLetter2 || kind == kLeadLetter3) tables.low[low] |= 1u << letter_bit;
      if (kind == kLeadMixed) tables.low[low] |= 1u << mixed_bit;
    }
    tables.high[high] = static_cast<uint8_t>(1u << mixed_bit);
    if (high != 0xF) tables.high[high] |= 1u << letter_bit;
  }
  return tables;
}

// ASCII stops, by their high half: one bit each.
constexpr HalfByteTables make_stop_tables() {
  HalfByteTables tables{};
  for (unsigned c = 0; c < 128; ++c) {
    if (!is_stop(c)) continue;
    tables.low[c & 15] |= static_cast<uint8_t>(1u << (c >> 4));
    tables.high[c >> 4] = static_cast<uint8_t>(1u << (c >> 4));
  }
  return tables;
}

constexpr HalfByteTables kAsciiTables = make_ascii_tables();
constexpr HalfByteTables kLeadTables = make_lead_tables();
constexpr HalfByteTables kStopTables = make_stop_tables();

}  // namespace penstok::kernel
