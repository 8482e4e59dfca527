// The pattern of DeepSeek V3 and R1, on masks of 64 bytes. Its file has three splits in a row:
//
//   \p{N}{1,3}
//   [4E00-9FA5 3040-30FF]+                       (here: kana and Han)
//   [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ |
//    ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Each divides what the one before it has left, so that a run of kana and Han is divided as if it
// were a text of its own, and so is what is between such runs and numbers. `turn` below is where
// one of them begins or ends. `none` are characters that are in no class at all (controls, format
// characters, unassigned ones).
//
//   letter   (or mark) begins a piece unless one of them, an inline space or a none precedes it; nor
//            does an ASCII letter after a single ASCII other. Then the first that is not an ASCII
//            letter begins another piece.
//   other    begins a piece unless another one or a blank precedes it.
//   none     begins a piece unless another one precedes it; always before a letter.
//   spaces   as in cl100k, but they are not divided before numbers, kana and Han.
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"
#include "text/pattern_parts.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Turns the byte classes of one document, 64 bytes at a time in order, into masks of piece starts.
class DeepSeekPattern {
 public:
  using Classes = DetailedByteClasses;
  static constexpr bool kDividesLatin = false;
  static constexpr bool kClassifiesAscii = false;

  // `classes` are those of the 64 bytes at p, `next` those of the 64 after them. `left` bytes of
  // the document begin at p.
  PENSTOK_INLINE uint64_t of(const Classes& classes, const Classes& next, const uint8_t* p,
                             size_t left) {
    const uint64_t kana_han = classes.kana_han, space = classes.space;
    const uint64_t turn = kana_han ^ (kana_han << 1 | kana_han_);
    const uint64_t next_turn = next.kana_han ^ (next.kana_han << 1 | kana_han >> 63);
    const uint64_t letter = classes.letter | classes.mark, other = classes.punctuation;
    const uint64_t ascii_letter = letter & ~classes.high;
    const uint64_t none = ~(letter | other | classes.number | space);
    const uint64_t after_other = (other << 1 | other_) & ~turn;
    const uint64_t first_other = other & ~after_other & ~((classes.blank << 1 | blank_) & ~turn);
    const uint64_t after_none = none << 1 | none_;
    const uint64_t inline_space = space & ~classes.newline;

    const uint64_t led = ascii_letter & ((first_other & ~classes.high) << 1 | first_);
    const uint64_t led_run = spread(led | (ascii_letter & led_), ascii_letter);
    const uint64_t word = letter & ~(letter << 1 | letter_) &
                          ~(inline_space << 1 | inline_) & ~after_none & ~led;
    uint64_t starts = word | (letter & ~ascii_letter & (led_run << 1 | led_));
    starts |= first_other | numbers_.starts(classes) | turn | (none & ~after_none);
    const uint64_t more = none & after_none & ~classes.continuation;
    if (PENSTOK_UNLIKELY(more)) {
      const uint64_t next_letter = next.letter | next.mark;
      starts |= before_letters(more, letter & ~turn, next_letter & ~next_turn, p);
    }

    const uint64_t closed = classes.newline & (after_other | tail_);
    const uint64_t tail = classes.newline & ~(classes.newline + closed);
    starts |= spaces_.starts(classes, next, tail, space | classes.number | kana_han,
                             next.space | next.number | next.kana_han, p, left);

    letter_ = letter >> 63;
    other_ = other >> 63;
    none_ = none >> 63;
    kana_han_ = kana_han >> 63;
    inline_ = inline_space >> 63;
    blank_ = classes.blank >> 63;
    first_ = (first_other & ~classes.high) >> 63;
    led_ = led_run >> 63;
    tail_ = tail >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

 private:
  // Of the characters that begin at these bits, those that a letter follows.
  PENSTOK_INLINE static uint64_t before_letters(uint64_t characters, uint64_t letter,
                                                uint64_t next_letter, const uint8_t* p) {
    uint64_t found = 0;
    for (; characters != 0; characters &= characters - 1) {
      const unsigned i = lowest_bit(characters);
      const unsigned after = i + (p[i] < 0x80 ? 1 : p[i] < 0xE0 ? 2 : p[i] < 0xF0 ? 3 : 4);
      const uint64_t letter_after = after < 64 ? letter >> after : next_letter >> (after - 64);
      if (letter_after & 1) found |= uint64_t{1} << i;
    }
    return found;
  }

  NumberGroups<3> numbers_;
  LineSpaces spaces_;
  // What the byte before the 64 is, as bit 0.
  uint64_t letter_ = 0, other_ = 0, none_ = 0, kana_han_ = 0, inline_ = 0, blank_ = 0;
  uint64_t first_ = 0;  // an ASCII other that begins a piece
  uint64_t led_ = 0;    // an ASCII letter after one
  uint64_t tail_ = 0;   // a newline that belongs to others
};

}  // namespace penstok::kernel::PENSTOK_ISA
