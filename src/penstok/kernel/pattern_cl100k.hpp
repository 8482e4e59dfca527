// The pattern of cl100k_base and Llama 3 (three digits), Qwen 2 to 3 (one), on masks of 64 bytes:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} |
//    ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Here `others` are what is no letter, number or white space; `inline` is white space but \r and \n.
// What the alternatives come down to, by the character a piece may begin with:
//
//   letter   begins a piece unless a letter, an inline space or a lone other stands before it. An
//            other is lone if neither another one nor a blank stands before it.
//   number   begins a piece if no number stands before it, and again after every three.
//   other    begins a piece unless another one or a blank stands before it.
//   newline  right after others (and their newlines) it belongs to them. Else white space before and
//            after it goes with it, up to the last newline of the run.
//   inline   begins a piece: as the first of a run, after others' newlines, after the last newline of
//            a run, and as the last of a run that something follows (the letters or, if it is a
//            blank, the others that follow join it).
#pragma once

#include "bytes.hpp"
#include "pretokenizer.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Length of the contraction at p, an apostrophe with `left` bytes of the document from it; or 0.
// The long s (U+017F) is an s in another case.
PENSTOK_INLINE unsigned any_case_contraction_length(const uint8_t* p, size_t left) {
  const unsigned first = left > 1 ? p[1] : 0, second = left > 2 ? p[2] : 0;
  const unsigned lower = first | 0x20, second_lower = second | 0x20;
  if (lower == 's' || lower == 't' || lower == 'm' || lower == 'd') return 2;
  if (lower == 'l' && second_lower == 'l') return 3;
  if ((lower == 'v' || lower == 'r') && second_lower == 'e') return 3;
  return first == 0xC5 && second == 0xBF ? 3 : 0;
}

// Does the white space that begins at p go on to a newline? `left` bytes of the document can be
// read from p. Malformed text gets any answer.
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

// Turns the blocks of one document, given in order, into masks of piece starts.
template <unsigned kMostDigits>
class Cl100kPattern {
  static_assert(kMostDigits == 1 || kMostDigits == 3, "the two there are");

 public:
  // `block` holds the text at p, of which `left` bytes belong to the document; `next` follows it.
  PENSTOK_INLINE uint64_t of(const Block& block, const Block& next, const uint8_t* p,
                              size_t left) {
    const uint64_t letter = block.letter, space = block.space, newline = block.newline;
    const uint64_t other = ~(letter | block.number | space);
    const uint64_t inline_space = space & ~newline;
    const uint64_t after_other = other << 1 | other_;
    const uint64_t after_inline = inline_space << 1 | inline_;
    const uint64_t first_other = other & ~after_other & ~(block.blank << 1 | blank_);
    const uint64_t word =
        letter & ~(letter << 1 | letter_) & ~after_inline & ~after_first(first_other, block);
    uint64_t starts = word | first_other | number_starts(block) | set_next_;
    set_next_ = 0;

    // Newlines that belong to the others before them. Adding its first bit to a run of ones clears
    // the run.
    const uint64_t closed = newline & (after_other | closing_);
    const uint64_t closing = newline & ~(newline + closed);
    const uint64_t after_closing = closing << 1 | closing_;
    const uint64_t first_space = space & ~(space << 1 | space_) & ~closing;
    const uint64_t last_space = inline_space & ~block.high & ~(space >> 1 | next.space << 63);
    starts |= first_space | last_space | (inline_space & after_closing);
    if (PENSTOK_UNLIKELY(block.wide_space)) starts |= last_wide_spaces(block, next, p);
    const uint64_t breaks = newline & ~closing;
    const uint64_t margins = inline_space & (breaks << 1 | break_);
    starts |= last_margins(margins, block, next, p, left);

    const uint64_t quotes = block.apostrophe & first_other;
    if (quotes) starts |= after_contractions(quotes, p, left);

    letter_ = letter >> 63;
    number_ = block.number >> 63;
    other_ = other >> 63;
    space_ = space >> 63;
    inline_ = inline_space >> 63;
    blank_ = block.blank >> 63;
    closing_ = closing >> 63;
    break_ = breaks >> 63;
    return left < kBlockBytes ? starts & bits_below(left) : starts;
  }

 private:
  // The places behind the first characters of runs of others. Adding a bit to the continuation
  // bytes it stands before carries it past them.
  PENSTOK_INLINE uint64_t after_first(uint64_t first_other, const Block& block) {
    const uint64_t second = first_other << 1 | first_;
    const uint64_t sum = second + block.continuation;
    first_ = first_other >> 63 | (sum < second ? 1 : 0);
    return sum & ~block.continuation;
  }

  PENSTOK_INLINE uint64_t number_starts(const Block& block) {
    const uint64_t number = block.number;
    if constexpr (kMostDigits == 1) return number & ~block.continuation;
    if (PENSTOK_UNLIKELY(number & block.high)) return wide_number_starts(block);
    uint64_t starts = number & ~(number << 1 | number_);
    if (PENSTOK_UNLIKELY(number & number_)) {
      const unsigned rest = 3 - digits_;  // of the piece that began in the block before
      if ((~number & bits_below(rest + 1)) == 0) starts |= uint64_t{1} << rest;
    }
    const uint64_t third = number & number << 1 & number << 2;
    for (uint64_t more = starts << 3 & third; more != 0; more = more << 3 & third) starts |= more;
    if (PENSTOK_UNLIKELY(number >> 63)) digits_ = 1 + static_cast<unsigned>(__builtin_clzll(starts));
    return starts;
  }

  // The same one by one: some of the numbers take more than a byte.
  PENSTOK_INLINE uint64_t wide_number_starts(const Block& block) {
    const uint64_t after_number = block.number << 1 | number_;
    uint64_t starts = 0;
    for (uint64_t rest = block.number & ~block.continuation; rest != 0; rest &= rest - 1) {
      const uint64_t bit = rest & -rest;
      if (!(after_number & bit) || digits_ == 3) digits_ = 0;
      if (digits_++ == 0) starts |= bit;
    }
    return starts;
  }

  // Of the places where inline space follows a newline, those where no newline follows it again.
  PENSTOK_INLINE static uint64_t last_margins(uint64_t margins, const Block& block,
                                               const Block& next, const uint8_t* p, size_t left) {
    const uint64_t inline_space = block.space & ~block.newline;
    const uint64_t sum = inline_space + margins;  // carries each bit behind its run
    const uint64_t leaves_block = sum < margins ? ~uint64_t{0} : 0;
    // Where the run ends that leaves the block: 0 if it leaves the next one too.
    const uint64_t next_other = ~next.space | next.newline, next_end = next_other & -next_other;
    const bool unclear = leaves_block && next_end == 0;
    const uint64_t again = (sum & ~inline_space & block.newline) |
                           (leaves_block & next_end & next.newline);
    if (PENSTOK_LIKELY(again == 0 && !unclear)) return margins;
    if (left < kBlockBytes) margins &= bits_below(left);
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

  // What the byte before the block is, as bit 0.
  uint64_t letter_ = 0, number_ = 0, other_ = 0, space_ = 0, inline_ = 0, blank_ = 0;
  uint64_t closing_ = 0, break_ = 0;  // a newline that belongs to others, one that does not
  uint64_t first_ = 0;                // the first of a run of others, or the beginning of it
  uint64_t set_next_ = 0;             // where contractions end in the next block
  unsigned digits_ = 0;               // of the piece that ends there, if it is a number
};

}  // namespace penstok::kernel::PENSTOK_ISA
