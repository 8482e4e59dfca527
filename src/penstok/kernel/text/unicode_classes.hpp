// Which characters are letters, numbers or white space, and of what kind (Unicode 16.0, as in
// tiktoken 0.14).
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

constexpr unsigned kClassOther = 0;
constexpr unsigned kClassLetter = 1;
constexpr unsigned kClassNumber = 2;
constexpr unsigned kClassSpace = 3;

// The same with what some patterns distinguish further.
constexpr unsigned kDetailCapital = kClassLetter | 4;  // Lu, Lt
constexpr unsigned kDetailSmall = kClassLetter | 8;    // Ll; letters without case: kClassLetter
constexpr unsigned kDetailMark = kClassOther | 4;
constexpr unsigned kDetailPunctuation = kClassOther | 8;
constexpr unsigned kDetailSymbol = kClassOther | 12;

// What a lead byte alone determines. Most non-ASCII letters need no look-up.
constexpr uint8_t kLeadOther = 0;    // none of its characters is a letter, number or white space
constexpr uint8_t kLeadLetter2 = 1;  // two bytes, always a letter
constexpr uint8_t kLeadLetter3 = 2;  // three bytes, always a letter
constexpr uint8_t kLeadMixed = 4;    // the code point must be looked up

namespace unicode_tables {
#include "text/unicode_classes.inc"
}

PENSTOK_INLINE constexpr unsigned detail_of(uint32_t code_point) {  // code_point < 0x110000
  const unsigned page = unicode_tables::kUnicodePage[code_point >> 8];
  return unicode_tables::kUnicodeClass[page * 256 + (code_point & 255)];
}
PENSTOK_INLINE constexpr unsigned class_of(uint32_t code_point) {
  return detail_of(code_point) & 3;
}

}  // namespace penstok::kernel
