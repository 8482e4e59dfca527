// What patterns have in common: contractions in any case, groups of digits, and white space where
// newlines end a piece.
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// The bits of `seeds` and all that follow them in their runs of `through`, of which they are a
// part. Adding a bit to a run clears the run from there on.
PENSTOK_INLINE uint64_t spread(uint64_t seeds, uint64_t through) {
  return (((seeds + through) ^ through) | seeds) & through;
}

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

// Numbers in pieces of up to kMost digits, counted from the first of a run.
template <unsigned kMost>
class NumberGroups {
  static_assert(kMost >= 1 && kMost <= 3, "digits per piece");

 public:
  template <class Classes>
  PENSTOK_INLINE uint64_t starts(const Classes& classes) {
    if constexpr (kMost == 1) return classes.number & ~classes.continuation;
    const bool is_wide = classes.number & classes.high;
    const uint64_t starts =
        PENSTOK_UNLIKELY(is_wide) ? wide_starts(classes) : ascii_starts(classes.number);
    number_ = classes.number >> 63;
    return starts;
  }

  // The same where numbers among `han` may be matched as such: those that do not continue a piece
  // of fewer than kMost. They are removed from `number`.
  template <class Classes>
  PENSTOK_INLINE uint64_t starts_beside_han(const Classes& classes, uint64_t han,
                                            uint64_t& number) {
    const uint64_t rest_of_first = classes.continuation & ~(classes.continuation + 1);
    uint64_t starts = 0, found = number_ ? classes.number & rest_of_first : 0;
    for (uint64_t rest = classes.number & ~classes.continuation; rest != 0; rest &= rest - 1) {
      const uint64_t bit = rest & -rest, second = bit << 1;
      const bool follows = bit == 1 ? number_ : found & bit >> 1;
      if (!follows || digits_ == kMost) {
        if (han & bit) continue;
        digits_ = 0;
      }
      if (digits_++ == 0) starts |= bit;
      found |= bit | (classes.continuation & ~(classes.continuation + second));
    }
    number = found;
    number_ = found >> 63;
    return starts;
  }

 private:
  PENSTOK_INLINE uint64_t ascii_starts(uint64_t number) {
    uint64_t starts = number & ~(number << 1 | number_);
    if (PENSTOK_UNLIKELY(number & number_)) {
      const unsigned rest = kMost - digits_;  // of the piece that began in the previous 64 bytes
      if ((~number & bits_below(rest + 1)) == 0) starts |= uint64_t{1} << rest;
    }
    // Numbers that have kMost - 1 others before them.
    const uint64_t later = number & number << 1 & (kMost == 2 ? ~uint64_t{0} : number << 2);
    for (uint64_t more = starts << kMost & later; more != 0; more = more << kMost & later) {
      starts |= more;
    }
    if (PENSTOK_UNLIKELY(number >> 63)) digits_ = 1 + static_cast<unsigned>(__builtin_clzll(starts));
    return starts;
  }

  // The same one by one, for numbers of more than one byte.
  template <class Classes>
  PENSTOK_INLINE uint64_t wide_starts(const Classes& classes) {
    const uint64_t after_number = classes.number << 1 | number_;
    uint64_t starts = 0;
    for (uint64_t rest = classes.number & ~classes.continuation; rest != 0; rest &= rest - 1) {
      const uint64_t bit = rest & -rest;
      if (!(after_number & bit) || digits_ == kMost) digits_ = 0;
      if (digits_++ == 0) starts |= bit;
    }
    return starts;
  }

  uint64_t number_ = 0;  // is the byte before the 64 one, as bit 0
  unsigned digits_ = 0;  // of the piece that ends there, if it is a number
};

// White space in \s*[\r\n]+ | \s+(?!\S) | \s+.
class LineSpaces {
 public:
  // `tail` are newlines that belong to what precedes them. `ends` is the white space and whatever
  // else may follow white space without dividing it; `next_ends` is that of the next 64 bytes.
  template <class Classes>
  PENSTOK_INLINE uint64_t starts(const Classes& classes, const Classes& next, uint64_t tail,
                                 uint64_t ends, uint64_t next_ends, const uint8_t* p,
                                 size_t left) {
    const uint64_t space = classes.space, newline = classes.newline;
    const uint64_t inline_space = space & ~newline, breaks = newline & ~tail;
    const uint64_t first_space = space & ~(space << 1 | space_) & ~tail;
    const uint64_t last_space = inline_space & ~classes.high & ~(ends >> 1 | next_ends << 63);
    const uint64_t after_tail = inline_space & (tail << 1 | tail_);
    uint64_t starts = first_space | last_space | after_tail;
    if (PENSTOK_UNLIKELY(classes.wide_space)) {
      starts |= last_wide_spaces(classes.wide_space, ends, next_ends, p);
    }
    const uint64_t margins = inline_space & (breaks << 1 | break_);
    starts |= last_margins(margins, classes, next, p, left);
    space_ = space >> 63;
    tail_ = tail >> 63;
    break_ = breaks >> 63;
    return starts;
  }

 private:
  // Of the positions where inline space follows a newline, those after which no newline follows.
  template <class Classes>
  PENSTOK_INLINE static uint64_t last_margins(uint64_t margins, const Classes& classes,
                                              const Classes& next, const uint8_t* p,
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

  // Is the byte before the 64 one, as bit 0.
  uint64_t space_ = 0, tail_ = 0, break_ = 0;
};

}  // namespace penstok::kernel::PENSTOK_ISA
