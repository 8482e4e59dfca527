// Where pieces begin: the GPT-2 pattern as arithmetic on masks of 64 bytes, with UTF-8 validation.
//
//   's 't 'm 'd 'll 've 're | ?letters+ | ?numbers+ | ?others+ | spaces+(?!\S) | spaces+
//
// Another pattern is another `PieceStarts`; nothing else in the kernel knows the pattern.
#pragma once

#include "block_masks.hpp"
#include "bytes.hpp"
#include "simd.hpp"
#include "unicode_classes.hpp"

namespace penstock::kernel::PENSTOCK_ISA {

constexpr size_t kBlockBytes = 64;
// `classify` reads 64 bytes and what is left of a character or contraction that begins in them.
constexpr size_t kWindowBytes = kBlockBytes + 8;

// What the end of one block says about the first bytes of the next.
struct Carry {
  uint64_t letter = 0, number = 0, space = 0;  // bytes of a character that began before
  uint64_t continuation = 0;                   // where continuation bytes must stand
};

// 64 bytes of text, every byte of a character having the class of the character.
struct Block {
  uint64_t letter, number, space;
  uint64_t blank, apostrophe;
  uint64_t high;        // bytes of non-ASCII characters
  uint64_t wide_space;  // first bytes of non-ASCII white space
  uint64_t malformed;   // not 0: this is not UTF-8
  Carry carry;
};

// Marks a character of `length` bytes that begins at bit i, in this block and the next.
PENSTOCK_INLINE void mark(uint64_t& mask, uint64_t& carry, unsigned i, unsigned length) {
  const uint64_t bytes = bits_below(length);
  mask |= bytes << i;
  carry |= bytes >> 1 >> (63 - i);
}

// Looks up the characters whose lead byte does not tell the class, one by one.
PENSTOCK_INLINE void look_up_mixed(const uint8_t* p, uint64_t mixed, Block& block) {
  for (; mixed != 0; mixed &= mixed - 1) {
    const unsigned i = lowest_bit(mixed);
    const uint8_t* at = p + i;
    uint32_t code_point;
    unsigned length;
    bool wrong = false;  // overlong, a surrogate, or above U+10FFFF
    if (at[0] < 0xE0) {
      code_point = code_point2(at);
      length = 2;
    } else if (at[0] < 0xF0) {
      code_point = code_point3(at);
      length = 3;
      wrong = code_point < 0x800 || (code_point & 0xF800) == 0xD800;
    } else {
      code_point = code_point4(at);
      length = 4;
      wrong = code_point < 0x10000 || code_point > 0x10FFFF;
    }
    if (PENSTOCK_UNLIKELY(wrong)) {
      block.malformed |= uint64_t{1} << i;
      continue;
    }
    const unsigned kind = class_of(code_point);
    if (PENSTOCK_LIKELY(kind <= kClassLetter)) {
      mark(block.letter, block.carry.letter, i, kind == kClassLetter ? length : 0);
    } else if (kind == kClassNumber) {
      mark(block.number, block.carry.number, i, length);
    } else {
      mark(block.space, block.carry.space, i, length);
      block.wide_space |= uint64_t{1} << i;
    }
  }
}

// Adds the non-ASCII characters among the bytes `inside` (those of the document).
PENSTOCK_INLINE void add_non_ascii(const uint8_t* p, uint64_t inside, const Carry& before,
                                   Block& block) {
  HighMasks masks = classify_high(p, block.high);
  masks.lead &= inside;
  masks.lead3 &= inside;
  masks.lead4 &= inside;
  // Continuation bytes must stand exactly where the lead bytes ask for them.
  const uint64_t expected =
      masks.lead << 1 | masks.lead3 << 2 | masks.lead4 << 3 | before.continuation;
  const uint64_t continuation = block.high & inside & ~masks.lead;
  block.carry.continuation = masks.lead >> 63 | masks.lead3 >> 62 | masks.lead4 >> 61;
  block.malformed = (expected ^ continuation) | (masks.malformed & inside);

  const uint64_t letter2 = masks.letter2 & inside, letter3 = masks.letter3 & inside;
  const uint64_t letters = letter2 | letter3;
  block.letter |= letters | letters << 1 | letter3 << 2 | before.letter;
  block.carry.letter = letters >> 63 | letter3 >> 62;
  block.number |= before.number;
  block.space |= before.space;
  look_up_mixed(p, masks.mixed & inside, block);
}

// `left` bytes of the document begin at p, of which kWindowBytes can be read. What lies past the
// end of the document counts as white space: the pattern treats both alike.
PENSTOCK_INLINE Block classify(const uint8_t* p, size_t left, const Carry& before) {
  const AsciiMasks ascii = classify_ascii(p);
  Block block{ascii.letter,     ascii.number, ascii.space, ascii.blank,
              ascii.apostrophe, ascii.high,   0,           0,
              Carry{}};
  const uint64_t inside = bits_below(left);
  if (ascii.high & inside) {
    add_non_ascii(p, inside, before, block);
  } else {
    block.malformed = before.continuation;
  }
  if (PENSTOCK_UNLIKELY(left < kBlockBytes)) {
    block.letter &= inside;
    block.number &= inside;
    block.blank &= inside;
    block.apostrophe &= inside;
    block.wide_space &= inside;
    block.space |= ~inside;
  }
  return block;
}

PENSTOCK_INLINE Block after_the_end() {
  return Block{0, 0, ~uint64_t{0}, 0, 0, 0, 0, 0, Carry{}};
}

// Length of the contraction at p, an apostrophe with `left` bytes of the document from it; or 0.
PENSTOCK_INLINE unsigned contraction_length(const uint8_t* p, size_t left) {
  const uint8_t first = left > 1 ? p[1] : 0, second = left > 2 ? p[2] : 0;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (first == 'l' && second == 'l') return 3;
  if ((first == 'v' || first == 'r') && second == 'e') return 3;
  return 0;
}

// Turns the blocks of one document, given in order, into masks of piece starts.
class PieceStarts {
 public:
  // `block` holds the text at p, of which `left` bytes belong to the document; `next` follows it.
  PENSTOCK_INLINE uint64_t of(const Block& block, const Block& next, const uint8_t* p,
                              size_t left) {
    const uint64_t letter = block.letter, number = block.number, space = block.space;
    const uint64_t other = ~(letter | number | space);
    const uint64_t after_other = other << 1 | other_;
    const uint64_t after_blank = block.blank << 1 | blank_;
    const uint64_t same_class = (letter & (letter << 1 | letter_)) |
                                (number & (number << 1 | number_)) | (other & after_other);
    const uint64_t word = ~(space | same_class | after_blank);
    const uint64_t first_space = space & ~(space << 1 | space_);
    // The last of several white spaces goes with the word after it, or stands alone.
    const uint64_t last_space = space & ~block.high & ~(space >> 1 | next.space << 63);
    uint64_t starts = word | first_space | last_space;
    starts = (starts | set_next_) & ~clear_next_;
    set_next_ = clear_next_ = 0;
    if (PENSTOCK_UNLIKELY(block.wide_space)) starts |= last_wide_spaces(block, next, p);
    const uint64_t quotes = block.apostrophe & ~after_other & ~after_blank;
    if (quotes) starts = with_contractions(starts, quotes, p, left);

    letter_ = letter >> 63;
    number_ = number >> 63;
    other_ = other >> 63;
    space_ = space >> 63;
    blank_ = block.blank >> 63;
    return left < kBlockBytes ? starts & bits_below(left) : starts;
  }

 private:
  PENSTOCK_INLINE static uint64_t last_wide_spaces(const Block& block, const Block& next,
                                                   const uint8_t* p) {
    uint64_t starts = 0;
    for (uint64_t rest = block.wide_space; rest != 0; rest &= rest - 1) {
      const unsigned i = lowest_bit(rest);
      const unsigned after = i + (p[i] < 0xE0 ? 2 : 3);
      const uint64_t space_after = after < 64 ? block.space >> after : next.space >> (after - 64);
      if (!(space_after & 1)) starts |= uint64_t{1} << i;
    }
    return starts;
  }

  // A contraction is one piece: no start after its apostrophe, but one after its end.
  PENSTOCK_INLINE uint64_t with_contractions(uint64_t starts, uint64_t quotes, const uint8_t* p,
                                             size_t left) {
    for (; quotes != 0; quotes &= quotes - 1) {
      const unsigned i = lowest_bit(quotes);
      const unsigned length = contraction_length(p + i, left - i);
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
  uint64_t set_next_ = 0, clear_next_ = 0;  // what a contraction says about the next block
};

}  // namespace penstock::kernel::PENSTOCK_ISA
