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

// ( ) | . , ! ? and the marks of other scripts at which BLOOM's pattern ends a word.
PENSTOK_INLINE constexpr bool is_stop(uint32_t c) {
  if (c < 0x80) {
    return c == '(' || c == ')' || c == '|' || c == '.' || c == ',' || c == '!' || c == '?';
  }
  return c == 0x060C || c == 0x06D4 || c == 0x0964 || c == 0x2026 || c == 0x3001 || c == 0x3002 ||
         c == 0xFF0C;
}

// \p{Han}: ideographs, and a few numbers, marks and symbols beside them (Unicode 16.0).
PENSTOK_INLINE constexpr bool is_han(uint32_t c) {
  if (c < 0x3400) {
    return (c >= 0x2E80 && c <= 0x2EF3 && c != 0x2E9A) || (c >= 0x2F00 && c <= 0x2FD5) ||
           c == 0x3005 || c == 0x3007 || (c >= 0x3021 && c <= 0x3029) ||
           (c >= 0x3038 && c <= 0x303B);
  }
  if (c < 0x20000) {
    return c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAD9 && c != 0xFA6E && c != 0xFA6F) || c == 0x16FE2 ||
           c == 0x16FE3 || c == 0x16FF0 || c == 0x16FF1;
  }
  return c <= 0x2A6DF || (c >= 0x2A700 && c <= 0x2B739) || (c >= 0x2B740 && c <= 0x2B81D) ||
         (c >= 0x2B820 && c <= 0x2CEA1) || (c >= 0x2CEB0 && c <= 0x2EBE0) ||
         (c >= 0x2EBF0 && c <= 0x2EE5D) || (c >= 0x2F800 && c <= 0x2FA1D) ||
         (c >= 0x30000 && c <= 0x3134A) || (c >= 0x31350 && c <= 0x323AF);
}

}  // namespace penstok::kernel
