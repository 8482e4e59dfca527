// Divides Latin text (LatinDivision) with AVX-512. Included by avx512.hpp, after `Bytes64`.
#pragma once

#include "simd/latin_text.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// The kinds of bytes: bit 7 for white space, bit 6 for the blank, 0 for anything else.
constexpr uint8_t kLetter = 1, kNumber = 2, kSpace = 0x80, kBlank = 0xC0;
struct ByteKinds {
  alignas(64) uint8_t kind[128];
};
constexpr ByteKinds make_byte_kinds() {
  ByteKinds kinds{};
  for (unsigned c = 0; c < 128; ++c) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') kinds.kind[c] = kLetter;
    if (c >= '0' && c <= '9') kinds.kind[c] = kNumber;
    if (c >= 9 && c <= 13) kinds.kind[c] = kSpace;
    if (c == ' ') kinds.kind[c] = kBlank;
  }
  return kinds;
}
constexpr ByteKinds kByteKinds = make_byte_kinds();

class LatinDivider {
 public:
  PENSTOK_INLINE explicit LatinDivider(const uint8_t*) {}

  // Divides the 64 bytes at p; false if they and the one after them are not Latin. The one before
  // them must be.
  PENSTOK_INLINE bool divide(const uint8_t* p, LatinDivision& division) {
    const __m512i before = load(p - 1), text = load(p), after = load(p + 1);
    if (_mm512_movepi8_mask(_mm512_or_si512(_mm512_or_si512(before, text), after)) != 0) {
      return divide_with_letters(p, division);
    }
    const __m512i kind = kinds(text), previous = kinds(before), next = kinds(after);
    const uint64_t space = _mm512_movepi8_mask(kind);
    const uint64_t inside_space = _mm512_movepi8_mask(_mm512_and_si512(previous, next));
    const uint64_t after_blank = _mm512_test_epi8_mask(previous, bytes512(0x40));
    const uint64_t inside_word = _mm512_cmpeq_epi8_mask(kind, previous) | after_blank;
    division.starts = ~((space & inside_space) | (~space & inside_word));
    division.quotes = _mm512_cmpeq_epi8_mask(text, bytes512('\''));
    if (division.quotes != 0) {
      division.quotes &= ~(after_blank | _mm512_cmpeq_epi8_mask(previous, _mm512_setzero_si512()));
    }
    return true;
  }

 private:
  // The same where some of the bytes are not ASCII.
  PENSTOK_INLINE bool divide_with_letters(const uint8_t* p, LatinDivision& division) {
    const AsciiMasks ascii = classify_ascii(p);
    const bool is_next_known = p[64] < 0x80 || is_letter_lead(p[64]);
    const Bytes64 text(p);
    if (!is_next_known || (ascii.high != 0 && !is_latin(text, ascii.high))) return false;
    const uint64_t lead = text.at_least(kFirstLetterLead) & text.at_most(kLastLetterLead);
    const uint64_t letter = ascii.letter | lead | lead << 1;
    const uint64_t other = ~(letter | ascii.number | ascii.space);
    const uint8_t before =  // a kind
        p[-1] < 0x80 ? kByteKinds.kind[p[-1]] : is_letter_lead(p[-2]) ? kLetter : 0;
    const uint64_t after_other = other << 1 | (before == 0);
    const uint64_t after_blank = ascii.blank << 1 | (before == kBlank);
    const uint64_t after_space = ascii.space << 1 | before >> 7;
    const uint64_t before_space =
        ascii.space >> 1 | uint64_t{p[64] < 0x80 && (kByteKinds.kind[p[64]] & kSpace)} << 63;
    const uint64_t inside_word = (letter & (letter << 1 | (before == kLetter))) |
                                 (ascii.number & (ascii.number << 1 | (before == kNumber))) |
                                 (other & after_other) | after_blank;
    division.starts = ~((ascii.space & after_space & before_space) | (~ascii.space & inside_word));
    division.quotes = ascii.apostrophe & ~(after_blank | after_other);
    return true;
  }

  PENSTOK_INLINE static __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  PENSTOK_INLINE static __m512i kinds(__m512i v) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(kByteKinds.kind), v,
                                    _mm512_load_si512(kByteKinds.kind + 64));
  }
};

}  // namespace penstok::kernel::PENSTOK_ISA
