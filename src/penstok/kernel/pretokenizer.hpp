// What 64 bytes of text are, as masks: letters, numbers, white space; and whether they are UTF-8.
//
// The patterns (pattern_*.hpp) turn these masks into the starts of pieces.
#pragma once

#include "block_masks.hpp"
#include "bytes.hpp"
#include "simd.hpp"
#include "unicode_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

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
  uint64_t blank, newline, apostrophe;
  uint64_t high;          // bytes of non-ASCII characters
  uint64_t continuation;  // those that are not the first of their character
  uint64_t wide_space;    // first bytes of non-ASCII white space
  uint64_t malformed;     // not 0: this is not UTF-8
  Carry carry;
};

// Marks a character of `length` bytes that begins at bit i, in this block and the next.
PENSTOK_INLINE void mark(uint64_t& mask, uint64_t& carry, unsigned i, unsigned length) {
  const uint64_t bytes = bits_below(length);
  mask |= bytes << i;
  carry |= bytes >> 1 >> (63 - i);
}

// Looks up the characters whose lead byte does not tell the class, one by one.
PENSTOK_INLINE void look_up_mixed(const uint8_t* p, uint64_t mixed, Block& block) {
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
    if (PENSTOK_UNLIKELY(wrong)) {
      block.malformed |= uint64_t{1} << i;
      continue;
    }
    const unsigned kind = class_of(code_point);
    if (PENSTOK_LIKELY(kind <= kClassLetter)) {
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
PENSTOK_INLINE void add_non_ascii(const uint8_t* p, uint64_t inside, const Carry& before,
                                   Block& block) {
  HighMasks masks = classify_high(p, block.high);
  masks.lead &= inside;
  masks.lead3 &= inside;
  masks.lead4 &= inside;
  // Continuation bytes must stand exactly where the lead bytes ask for them.
  const uint64_t expected =
      masks.lead << 1 | masks.lead3 << 2 | masks.lead4 << 3 | before.continuation;
  block.continuation = block.high & inside & ~masks.lead;
  block.carry.continuation = masks.lead >> 63 | masks.lead3 >> 62 | masks.lead4 >> 61;
  block.malformed = (expected ^ block.continuation) | (masks.malformed & inside);

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
PENSTOK_INLINE Block classify(const uint8_t* p, size_t left, const Carry& before) {
  const AsciiMasks ascii = classify_ascii(p);
  Block block{};
  block.letter = ascii.letter;
  block.number = ascii.number;
  block.space = ascii.space;
  block.blank = ascii.blank;
  block.newline = ascii.newline;
  block.apostrophe = ascii.apostrophe;
  block.high = ascii.high;
  const uint64_t inside = bits_below(left);
  if (ascii.high & inside) {
    add_non_ascii(p, inside, before, block);
  } else {
    block.malformed = before.continuation;
  }
  if (PENSTOK_UNLIKELY(left < kBlockBytes)) {
    block.letter &= inside;
    block.number &= inside;
    block.blank &= inside;
    block.newline &= inside;
    block.apostrophe &= inside;
    block.wide_space &= inside;
    block.space |= ~inside;
  }
  return block;
}

PENSTOK_INLINE Block after_the_end() {
  Block block{};
  block.space = ~uint64_t{0};
  return block;
}

// First bytes of non-ASCII white space after which none follows.
PENSTOK_INLINE uint64_t last_wide_spaces(const Block& block, const Block& next, const uint8_t* p) {
  uint64_t last = 0;
  for (uint64_t rest = block.wide_space; rest != 0; rest &= rest - 1) {
    const unsigned i = lowest_bit(rest);
    const unsigned after = i + (p[i] < 0xE0 ? 2 : 3);
    const uint64_t space_after = after < 64 ? block.space >> after : next.space >> (after - 64);
    if (!(space_after & 1)) last |= uint64_t{1} << i;
  }
  return last;
}

}  // namespace penstok::kernel::PENSTOK_ISA
