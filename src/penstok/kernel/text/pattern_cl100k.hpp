// The pattern of cl100k_base and Llama 3 (three digits), Qwen 2 to 3 (one), on masks of 64 bytes:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} |
//    ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Here `others` are characters that are not letters, numbers or white space; `inline` is white
// space except \r and \n. What the alternatives mean, by the character a piece may begin with:
//
//   letter   begins a piece unless a letter, an inline space or a single other precedes it. An
//            other is single if neither another one nor a blank precedes it.
//   number   begins a piece if no number precedes it, and again after every three.
//   other    begins a piece unless another one or a blank precedes it.
//   newline  belongs to the others (and their newlines) right before it, if any. Otherwise it forms
//            one piece with the white space around it, up to the last newline of the run.
//   inline   begins a piece: as the first of a run, after others' newlines, after the last newline of
//            a run, and as the last of a run that is followed by something (which joins it if it
//            is letters, or others after a blank).
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Length of the contraction at p, an apostrophe with `left` bytes of the document from it; or 0.
// The long s (U+017F) matches s when case is ignored.
PENSTOK_INLINE unsigned any_case_contraction_length(const uint8_t* p, size_t left) {
  const unsigned first = left > 1 ? p[1] : 0, second = left > 2 ? p[2] : 0;
  const unsigned lower = first | 0x20, second_lower = second | 0x20;
  if (lower == 's' || lower == 't' || lower == 'm' || lower == 'd') return 2;
  if (lower == 'l' && second_lower == 'l') return 3;
  if ((lower == 'v' || lower == 'r') && second_lower == 'e') return 3;
  return first == 0xC5 && second == 0xBF ? 3 : 0;
}

// Does the white space that begins at p contain a newline? `left` bytes of the document can be read
// from p. The result is undefined for malformed text.
PENSTOK_INLINE bool reaches_newline(const uint8_t* p, size_t left) {
  for (size_t i = 0; i < left;) {
    if (p[i] < 0x80) {
      if (p[i] == '\n' || p[i] == '\r') return true;
      if (p[i] != ' ' && (p[i] < 9 || p[i] > 13)) return false;
      ++i;
      continue;
    }
    // White space has two or three bytes.
    const unsigned length = p[i] < 0xE0 ? 2 : 3;
    if (p[i] >= 0xF0 || left - i < length) return false;
    const uint32_t code_point = length == 2 ? code_point2(p + i) : code_point3(p + i);
    if (class_of(code_point) != kClassSpace) return false;
    i += length;
  }
  return false;
}

// Turns the byte classes of one document, 64 bytes at a time in order, into masks of piece starts.
template <unsigned kMostDigits>
class Cl100kPattern {
  static_assert(kMostDigits == 1 || kMostDigits == 3, "digits per piece: cl100k has 3, Qwen 1");

 public:
  // `classes` are those of the 64 bytes at p, `next` those of the 64 after them. `left` bytes of
  // the document begin at p.
  PENSTOK_INLINE uint64_t of(const ByteClasses& classes, const ByteClasses& next, const uint8_t* p,
                             size_t left) {
    const uint64_t letter = classes.letter, space = classes.space, newline = classes.newline;
    const uint64_t other = ~(letter | classes.number | space);
    const uint64_t inline_space = space & ~newline;
    const uint64_t after_other = other << 1 | other_;
    const uint64_t after_inline = inline_space << 1 | inline_;
    const uint64_t first_other = other & ~after_other & ~(classes.blank << 1 | blank_);
    const uint64_t word =
        letter & ~(letter << 1 | letter_) & ~after_inline & ~after_first(first_other, classes);
    uint64_t starts = word | first_other | number_starts(classes) | set_next_;
    set_next_ = 0;

    // Newlines that belong to the others before them. Adding a run's first bit to it clears the
    // run.
    const uint64_t closed = newline & (after_other | closing_);
    const uint64_t closing = newline & ~(newline + closed);
    const uint64_t after_closing = closing << 1 | closing_;
    const uint64_t first_space = space & ~(space << 1 | space_) & ~closing;
    const uint64_t last_space = inline_space & ~classes.high & ~(space >> 1 | next.space << 63);
    starts |= first_space | last_space | (inline_space & after_closing);
    if (PENSTOK_UNLIKELY(classes.wide_space)) starts |= last_wide_spaces(classes, next, p);
    const uint64_t breaks = newline & ~closing;
    const uint64_t margins = inline_space & (breaks << 1 | break_);
    starts |= last_margins(margins, classes, next, p, left);

    const uint64_t quotes = classes.apostrophe & first_other;
    if (quotes) starts |= after_contractions(quotes, p, left);

    letter_ = letter >> 63;
    number_ = classes.number >> 63;
    other_ = other >> 63;
    space_ = space >> 63;
    inline_ = inline_space >> 63;
    blank_ = classes.blank >> 63;
    closing_ = closing >> 63;
    break_ = breaks >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

 private:
  // The positions after the first characters of runs of others. Adding a bit to the continuation
  // bytes that follow it carries it past them.
  PENSTOK_INLINE uint64_t after_first(uint64_t first_other, const ByteClasses& classes) {
    const uint64_t second = first_other << 1 | first_;
    const uint64_t sum = second + classes.continuation;
    first_ = first_other >> 63 | (sum < second ? 1 : 0);
    return sum & ~classes.continuation;
  }

  PENSTOK_INLINE uint64_t number_starts(const ByteClasses& classes) {
    const uint64_t number = classes.number;
    if constexpr (kMostDigits == 1) return number & ~classes.continuation;
    if (PENSTOK_UNLIKELY(number & classes.high)) return wide_number_starts(classes);
    uint64_t starts = number & ~(number << 1 | number_);
    if (PENSTOK_UNLIKELY(number & number_)) {
      const unsigned rest = 3 - digits_;  // of the piece that began in the previous 64 bytes
      if ((~number & bits_below(rest + 1)) == 0) starts |= uint64_t{1} << rest;
    }
    const uint64_t third = number & number << 1 & number << 2;
    for (uint64_t more = starts << 3 & third; more != 0; more = more << 3 & third) starts |= more;
    if (PENSTOK_UNLIKELY(number >> 63)) digits_ = 1 + static_cast<unsigned>(__builtin_clzll(starts));
    return starts;
  }

  // The same one by one, for numbers of more than one byte.
  PENSTOK_INLINE uint64_t wide_number_starts(const ByteClasses& classes) {
    const uint64_t after_number = classes.number << 1 | number_;
    uint64_t starts = 0;
    for (uint64_t rest = classes.number & ~classes.continuation; rest != 0; rest &= rest - 1) {
      const uint64_t bit = rest & -rest;
      if (!(after_number & bit) || digits_ == 3) digits_ = 0;
      if (digits_++ == 0) starts |= bit;
    }
    return starts;
  }

  // Of the positions where inline space follows a newline, those after which no newline follows.
  PENSTOK_INLINE static uint64_t last_margins(uint64_t margins, const ByteClasses& classes,
                                              const ByteClasses& next, const uint8_t* p,
                                              size_t left) {
    const uint64_t inline_space = classes.space & ~classes.newline;
    const uint64_t sum = inline_space + margins;  // carries each bit past its run
    const uint64_t leaves_mask = sum < margins ? ~uint64_t{0} : 0;
    // Where the run ends that continues past these 64 bytes: 0 if it continues past the next too.
    const uint64_t next_other = ~next.space | next.newline, next_end = next_other & -next_other;
    const bool unclear = leaves_mask && next_end == 0;
    const uint64_t again = (sum & ~inline_space & classes.newline) |
                           (leaves_mask & next_end & next.newline);
    if (PENSTOK_LIKELY(again == 0 && !unclear)) return margins;
    if (left < kMaskBytes) margins &= bits_below(left);
    uint64_t last = 0;
    for (uint64_t rest = margins; rest != 0; rest &= rest - 1) {
      const unsigned i = lowest_bit(rest);
      if (!reaches_newline(p + i, left - i)) last |= uint64_t{1} << i;
    }
    return last;
  }

  PENSTOK_INLINE uint64_t after_contractions(uint64_t quotes, const uint8_t* p, size_t left) {
    uint64_t starts = 0;
    for (; quotes != 0; quotes &= quotes - 1) {
      const unsigned i = lowest_bit(quotes);
      const unsigned length = any_case_contraction_length(p + i, left - i);
      if (length == 0) continue;
      const unsigned end = i + length;
      if (end < 64) {
        starts |= uint64_t{1} << end;
      } else {
        set_next_ |= uint64_t{1} << (end - 64);
      }
    }
    return starts;
  }

  // What the byte before the 64 is, as bit 0.
  uint64_t letter_ = 0, number_ = 0, other_ = 0, space_ = 0, inline_ = 0, blank_ = 0;
  uint64_t closing_ = 0, break_ = 0;  // a newline that belongs to others, one that does not
  uint64_t first_ = 0;                // the first of a run of others, or the beginning of it
  uint64_t set_next_ = 0;             // where contractions end in the next 64 bytes
  unsigned digits_ = 0;               // of the piece that ends there, if it is a number
};

}  // namespace penstok::kernel::PENSTOK_ISA
