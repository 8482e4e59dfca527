// Masks of 64 bytes of text that each instruction set computes: one bit per byte, first byte
// lowest.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

struct AsciiMasks {
  uint64_t letter, number, space;  // ASCII only
  uint64_t blank;                  // ' ', the only white space that joins the word after it
  uint64_t newline;                // carriage return, line feed
  uint64_t apostrophe;
  uint64_t high;  // bytes of non-ASCII characters
};

// Where 64 bytes of Latin text (latin_text.hpp) are divided: at every change between letters,
// numbers, white space and anything else. A blank belongs to what is after it; otherwise white space
// is divided before its last character. Most text is Latin, and this takes a third of the
// instructions that the masks of all classes and a pattern take. An instruction set that has it has
// a class LatinDivider.
struct LatinDivision {
  uint64_t starts;
  uint64_t quotes;  // apostrophes after letters, numbers or white space that is not a blank
};

struct HighMasks {
  uint64_t lead, lead3, lead4;  // first bytes of characters of >= 2, >= 3, 4 bytes
  uint64_t letter2, letter3;    // first bytes of letters that are 2 or 3 bytes long
  uint64_t mixed;               // first bytes of characters that must be looked up
  uint64_t malformed;           // bytes that never occur in UTF-8: C0, C1, F5 to FF
};

// What only some patterns need.
struct AsciiDetails {
  uint64_t bit5;   // bytes with bit 5: of the letters, the small ones
  uint64_t slash;
  uint64_t control;  // below the blank, and 7F
};

// The same as HighMasks with the case of letters: the three-byte letters have none, the two-byte
// letters are capital or small, and everything else that can be a letter or a mark is mixed.
struct DetailedHighMasks : HighMasks {
  uint64_t capital2, small2;
  uint64_t kana_han3;  // 3040..30FF and 4E00..9FA5
};

// First bytes of the stops (text/unicode_classes.hpp) that are two and three bytes long.
struct WideStops {
  uint64_t two, three;
};

}  // namespace penstok::kernel
