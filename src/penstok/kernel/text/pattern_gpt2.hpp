// GPT-2's pattern as arithmetic on masks of 64 bytes:
//
//   's 't 'm 'd 'll 've 're | ?letters+ | ?numbers+ | ?others+ | spaces+(?!\S) | spaces+
//
// With digits apart (StarCoder, SmolLM, Command R) text is divided at every number first: each is a
// piece, and white space before one is not divided.
//
// A pattern is a class like this one; no other file depends on its rules.
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Length of the contraction at p, an apostrophe with `left` bytes of the document from it; or 0.
PENSTOK_INLINE unsigned gpt2_contraction_length(const uint8_t* p, size_t left) {
  const uint8_t first = left > 1 ? p[1] : 0, second = left > 2 ? p[2] : 0;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (first == 'l' && second == 'l') return 3;
  if ((first == 'v' || first == 'r') && second == 'e') return 3;
  return 0;
}

// Turns the byte classes of one document, 64 bytes at a time in order, into masks of piece starts.
template <bool kDigitsApart>
class Gpt2Pattern {
 public:
  using Classes = ByteClasses;
  // Are pieces of Latin text what `LatinDivider` finds, but for contractions?
  static constexpr bool kDividesLatin = PENSTOK_DIVIDES_LATIN && !kDigitsApart;
  static constexpr bool kClassifiesAscii = false;

  // `classes` are those of the 64 bytes at p, `next` those of the 64 after them. `left` bytes of
  // the document begin at p.
  PENSTOK_INLINE uint64_t of(const ByteClasses& classes, const ByteClasses& next, const uint8_t* p,
                             size_t left) {
    const uint64_t letter = classes.letter, number = classes.number, space = classes.space;
    const uint64_t other = ~(letter | number | space);
    const uint64_t after_other = other << 1 | other_;
    const uint64_t after_blank = classes.blank << 1 | blank_;
    const uint64_t same_class = (letter & (letter << 1 | letter_)) |
                                (number & (number << 1 | number_)) | (other & after_other);
    const uint64_t word = kDigitsApart ? (~(space | same_class | after_blank | number) |
                                          (number & ~classes.continuation))
                                       : ~(space | same_class | after_blank);
    const uint64_t first_space = space & ~(space << 1 | space_);
    // The last of several white spaces joins the word after it, or is a piece of its own.
    const uint64_t ends_space = kDigitsApart ? space | number : space;
    const uint64_t next_ends_space = kDigitsApart ? next.space | next.number : next.space;
    const uint64_t last_space =
        space & ~classes.high & ~(ends_space >> 1 | next_ends_space << 63);
    uint64_t starts = with_contraction_before(word | first_space | last_space);
    if (PENSTOK_UNLIKELY(classes.wide_space)) {
      starts |= last_wide_spaces(classes.wide_space, ends_space, next_ends_space, p);
    }
    const uint64_t quotes = classes.apostrophe & ~after_other & ~after_blank;
    if (quotes) starts = with_contractions(starts, quotes, p, left);

    letter_ = letter >> 63;
    number_ = number >> 63;
    other_ = other >> 63;
    space_ = space >> 63;
    blank_ = classes.blank >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

#if PENSTOK_DIVIDES_LATIN
  // The same for 64 bytes of Latin text at p, with more than 64 bytes of the document after them.
  PENSTOK_INLINE uint64_t of_latin(const LatinDivision& division, const uint8_t* p, size_t left) {
    const uint64_t starts = with_contraction_before(division.starts);
    return division.quotes ? with_contractions(starts, division.quotes, p, left) : starts;
  }

  // Goes on with `of` at p, after Latin text.
  PENSTOK_INLINE void continue_at(const uint8_t* p) {
    const uint8_t byte = p[-1];
    letter_ = byte < 0x80 ? static_cast<uint8_t>((byte | 0x20) - 'a') < 26 : is_letter_lead(p[-2]);
    number_ = static_cast<uint8_t>(byte - '0') < 10;
    blank_ = byte == ' ';
    space_ = blank_ || static_cast<uint8_t>(byte - 9) < 5;
    other_ = !(letter_ | number_ | space_);
  }
#endif

 private:
  // Applies what a contraction at the end of the last 64 bytes changes.
  PENSTOK_INLINE uint64_t with_contraction_before(uint64_t starts) {
    starts = (starts | set_next_) & ~clear_next_;
    set_next_ = clear_next_ = 0;
    return starts;
  }

  // A contraction is one piece: no start after its apostrophe, but one after its end.
  PENSTOK_INLINE uint64_t with_contractions(uint64_t starts, uint64_t quotes, const uint8_t* p,
                                            size_t left) {
    for (; quotes != 0; quotes &= quotes - 1) {
      const unsigned i = lowest_bit(quotes);
      const unsigned length = gpt2_contraction_length(p + i, left - i);
      if (length == 0) continue;
      const unsigned end = i + length;
      if (i < 63) {
        starts &= ~(uint64_t{2} << i);
      } else {
        clear_next_ = 1;
      }
      if (end < 64) {
        starts |= uint64_t{1} << end;
      } else {
        set_next_ |= uint64_t{1} << (end - 64);
      }
    }
    return starts;
  }

  uint64_t letter_ = 0, number_ = 0, other_ = 0, space_ = 0, blank_ = 0;  // the byte before
  uint64_t set_next_ = 0, clear_next_ = 0;  // what a contraction changes in the next 64
};

}  // namespace penstok::kernel::PENSTOK_ISA
