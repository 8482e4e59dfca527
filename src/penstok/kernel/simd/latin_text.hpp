// Is text Latin: ASCII, Latin letters of two bytes, and the punctuation that goes with them? That is
// most text in European languages, and it is divided as ASCII is (LatinDivision).
#pragma once

#include "bytes.hpp"
#include "simd/byte_masks.hpp"

namespace penstok::kernel {

// Lead bytes of U+00C0 to U+027F. All of those are letters but for the signs of multiplication and
// division.
constexpr uint8_t kFirstLetterLead = 0xC3, kLastLetterLead = 0xC9;
PENSTOK_INLINE bool is_letter_lead(uint8_t byte) {
  return byte >= kFirstLetterLead && byte <= kLastLetterLead;
}

// Are 64 bytes of text Latin? `high` are those that are not ASCII; all characters must begin and end
// here. True only for well-formed UTF-8. `Bytes` is the Bytes64 of an instruction set.
template <class Bytes>
PENSTOK_INLINE bool is_latin(const Bytes& text, uint64_t high) {
  const uint64_t letter = text.at_least(kFirstLetterLead) & text.at_most(kLastLetterLead);
  const uint64_t sign2 = text.equal(0xC2), sign3 = text.equal(0xE2);
  const uint64_t lead = letter | sign2 | sign3, second = lead << 1, third = sign3 << 2;
  uint64_t wrong = (high ^ (lead | second | third)) | (text.at_least(0xC0) ^ lead) |
                   (lead & (second | third)) | lead >> 63 | sign3 >> 62;
  wrong |= text.equal(0xC3) << 1 & (text.equal(0x97) | text.equal(0xB7));  // the two signs
  if (sign3) {  // U+2010 to U+2027: dashes, quotation marks, ellipsis
    wrong |= sign3 << 1 & ~text.equal(0x80);
    wrong |= third & ~(text.at_least(0x90) & text.at_most(0xA7));
  }
  if (sign2) {  // U+00A1 to U+00A9 and « ° · » ¿
    wrong |= sign2 << 1 & ~((text.at_least(0xA1) & text.at_most(0xA9)) | text.equal(0xAB) |
                            text.equal(0xB0) | text.equal(0xB7) | text.equal(0xBB) |
                            text.equal(0xBF));
  }
  return wrong == 0;
}

}  // namespace penstok::kernel
