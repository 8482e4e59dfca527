// Pages: 64 characters of three bytes each that have the first two bytes in common. For the common
// pages that contain both letters and others, tables of the third byte tell them apart.
#pragma once

#include "bytes.hpp"
#include "simd/half_byte_tables.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel {

struct LetterPage {
  uint8_t second;
  // Letters with a third byte from 8x to Bx: bits 0 to 3; what is neither letter nor number nor
  // white space: bits 4 to 7.
  HalfByteTables halves;
  alignas(64) uint8_t whole[64];  // the same by the lower six bits; 1: letter, 2: neither
};

constexpr LetterPage make_letter_page(unsigned lead, unsigned second) {
  LetterPage page{};
  page.second = static_cast<uint8_t>(second);
  for (unsigned high = 0; high < 4; ++high) {
    page.halves.high[8 + high] = static_cast<uint8_t>(0x11 << high);
    for (unsigned low = 0; low < 16; ++low) {
      const unsigned third = 16 * high + low;
      const unsigned kind = class_of((lead & 0x0F) << 12 | (second & 0x3F) << 6 | third);
      const unsigned bit = kind == kClassLetter ? 1 : kind == kClassOther ? 2 : 0;
      page.whole[third] = static_cast<uint8_t>(bit);
      page.halves.low[low] |= static_cast<uint8_t>((bit & 1) << high | (bit >> 1) << (4 + high));
    }
  }
  return page;
}

constexpr LetterPage kThaiAndDevanagari[] = {
    make_letter_page(0xE0, 0xB8), make_letter_page(0xE0, 0xB9), make_letter_page(0xE0, 0xA4),
    make_letter_page(0xE0, 0xA5)};
constexpr LetterPage kGeneralPunctuation = make_letter_page(0xE2, 0x80);  // quotes and dashes
constexpr LetterPage kEastAsianPunctuation = make_letter_page(0xE3, 0x80);
constexpr LetterPage kKana[] = {make_letter_page(0xE3, 0x81), make_letter_page(0xE3, 0x82),
                                make_letter_page(0xE3, 0x83)};
constexpr LetterPage kFullWidthForms = make_letter_page(0xEF, 0xBC);

// Which third bytes, of whatever page, are those of letters and of neither.
struct ThirdMasks {
  uint64_t letter, neither;
};

}  // namespace penstok::kernel
