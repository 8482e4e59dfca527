// Classifies 64 bytes of text as masks (letters, numbers, white space) and validates UTF-8.
//
// The patterns (pattern_*.hpp) turn these masks into the starts of pieces.
#pragma once

#include <type_traits>

#include "bytes.hpp"
#include "simd/byte_masks.hpp"
#include "simd/simd.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

constexpr size_t kMaskBytes = 64;  // one bit each
// `classify` reads 64 bytes and the rest of a character or contraction that begins in them.
constexpr size_t kWindowBytes = kMaskBytes + 8;

// What the end of 64 bytes determines about the first bytes of the next 64.
struct Carry {
  uint64_t letter = 0, number = 0, space = 0;  // bytes of a character that began before
  uint64_t continuation = 0;                   // where continuation bytes must be
};

// The classes of 64 bytes of text, as masks; every byte has the class of its character.
struct ByteClasses {
  uint64_t letter, number, space;
  uint64_t blank, newline, apostrophe;
  uint64_t high;          // bytes of non-ASCII characters
  uint64_t continuation;  // those that are not the first of their character
  uint64_t wide_space;    // first bytes of non-ASCII white space
  uint64_t malformed;     // not 0: this is not UTF-8
  Carry carry;
};

// What some patterns distinguish further. (In ByteClasses it would make the others slower.)
struct DetailMasks {
  uint64_t capital = 0, small = 0;  // letters that have case
  uint64_t mark = 0;                // these and those of the next line are in none of the classes
  uint64_t punctuation = 0;         // or symbols
  uint64_t kana_han = 0;  // characters of 3040..30FF and 4E00..9FA5, also counted as what they are
};
struct DetailedByteClasses : ByteClasses, DetailMasks {
  uint64_t slash;
  DetailMasks detail_carry;  // bytes of a character that began before
};

// The same with all of \p{Han}, and no kana, in `kana_han`.
struct HanByteClasses : DetailedByteClasses {};

// With the stops (unicode_classes.hpp) at which BLOOM's pattern ends a word.
struct StopByteClasses : ByteClasses {
  uint64_t stop;
  uint64_t stop_carry;  // bytes of one that began before
};

// The same for 64 bytes of ASCII: what only other characters have is a constant, so that no code is
// compiled for it.
struct AsciiClasses {
  uint64_t letter, number, space;
  uint64_t blank, newline, apostrophe;
  uint64_t capital, small, slash;
  static constexpr uint64_t high = 0, continuation = 0, wide_space = 0, mark = 0, kana_han = 0;
};

template <class Classes>
constexpr bool kIsDetailed = std::is_base_of_v<DetailedByteClasses, Classes>;
template <class Classes>
constexpr bool kHasHan = std::is_same_v<Classes, HanByteClasses>;
template <class Classes>
constexpr bool kHasStops = std::is_same_v<Classes, StopByteClasses>;

// Marks a character of `length` bytes that begins at bit i, in this mask and the next.
PENSTOK_INLINE void mark(uint64_t& mask, uint64_t& carry, unsigned i, unsigned length) {
  const uint64_t bytes = bits_below(length);
  mask |= bytes << i;
  carry |= bytes >> 1 >> (63 - i);
}

// Looks up, one by one, the characters whose lead byte does not determine the class.
template <class Classes>
PENSTOK_INLINE void look_up_mixed(const uint8_t* p, uint64_t mixed, Classes& classes) {
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
      classes.malformed |= uint64_t{1} << i;
      continue;
    }
    const unsigned detail = detail_of(code_point), kind = detail & 3;
    if constexpr (kHasHan<Classes>) {
      mark(classes.kana_han, classes.detail_carry.kana_han, i, is_han(code_point) ? length : 0);
    }
    if (PENSTOK_LIKELY(kind <= kClassLetter)) {
      mark(classes.letter, classes.carry.letter, i, kind == kClassLetter ? length : 0);
      if constexpr (kIsDetailed<Classes>) {
        DetailMasks& carry = classes.detail_carry;
        mark(classes.capital, carry.capital, i, detail == kDetailCapital ? length : 0);
        mark(classes.small, carry.small, i, detail == kDetailSmall ? length : 0);
        mark(classes.mark, carry.mark, i, detail == kDetailMark ? length : 0);
        mark(classes.punctuation, carry.punctuation, i,
             detail == kDetailPunctuation || detail == kDetailSymbol ? length : 0);
      }
    } else if (kind == kClassNumber) {
      mark(classes.number, classes.carry.number, i, length);
    } else {
      mark(classes.space, classes.carry.space, i, length);
      classes.wide_space |= uint64_t{1} << i;
    }
  }
}

// Adds what needs no look-up: capital and small letters, kana and Han.
PENSTOK_INLINE void add_details(const DetailedHighMasks& masks, uint64_t inside,
                                const DetailMasks& before, DetailedByteClasses& classes) {
  const uint64_t capital = masks.capital2 & inside, small = masks.small2 & inside;
  classes.capital |= capital | capital << 1 | before.capital;
  classes.small |= small | small << 1 | before.small;
  classes.mark = before.mark;
  classes.punctuation |= before.punctuation;
  classes.detail_carry.capital = capital >> 63;
  classes.detail_carry.small = small >> 63;
  const uint64_t kana_han = masks.kana_han3 & inside;
  classes.kana_han = kana_han | kana_han << 1 | kana_han << 2 | before.kana_han;
  classes.detail_carry.kana_han = kana_han >> 63 | kana_han >> 62;
}

PENSTOK_INLINE void add_wide_stops(const WideStops& stops, uint64_t inside, uint64_t before,
                                   StopByteClasses& classes) {
  const uint64_t two = stops.two & inside, three = stops.three & inside, leads = two | three;
  classes.stop |= leads | leads << 1 | three << 2 | before;
  classes.stop_carry = leads >> 63 | three >> 62;
}

// Adds the non-ASCII characters among the bytes `inside` (those of the document).
template <class Classes>
PENSTOK_INLINE void add_non_ascii(const uint8_t* p, uint64_t inside, const Classes& previous,
                                  Classes& classes) {
  const Carry& before = previous.carry;
  std::conditional_t<kIsDetailed<Classes>, DetailedHighMasks, HighMasks> masks;
  if constexpr (kIsDetailed<Classes>) {
    masks = classify_high_detailed(p, classes.high);
    if constexpr (kHasHan<Classes>) masks.kana_han3 = find_han(p, masks.lead3 & ~masks.lead4);
  } else {
    masks = classify_high(p, classes.high);
  }
  masks.lead &= inside;
  masks.lead3 &= inside;
  masks.lead4 &= inside;
  // Continuation bytes must be exactly where the lead bytes require them.
  const uint64_t expected =
      masks.lead << 1 | masks.lead3 << 2 | masks.lead4 << 3 | before.continuation;
  classes.continuation = classes.high & inside & ~masks.lead;
  classes.carry.continuation = masks.lead >> 63 | masks.lead3 >> 62 | masks.lead4 >> 61;
  classes.malformed = (expected ^ classes.continuation) | (masks.malformed & inside);

  const uint64_t letter2 = masks.letter2 & inside, letter3 = masks.letter3 & inside;
  const uint64_t letters = letter2 | letter3;
  classes.letter |= letters | letters << 1 | letter3 << 2 | before.letter;
  classes.carry.letter = letters >> 63 | letter3 >> 62;
  classes.number |= before.number;
  classes.space |= before.space;
  if constexpr (kIsDetailed<Classes>) {
    add_details(masks, inside, previous.detail_carry, classes);
  }
  if constexpr (kHasStops<Classes>) {
    add_wide_stops(find_wide_stops(p, masks), inside, previous.stop_carry, classes);
  }
  look_up_mixed(p, masks.mixed & inside, classes);
}

// `left` bytes of the document begin at p, where kWindowBytes can be read. Bytes past the end of
// the document count as white space: the patterns treat both the same. `previous` are the 64 bytes
// before, if any.
template <class Classes>
PENSTOK_INLINE Classes classify(const uint8_t* p, size_t left, const Classes& previous) {
  const AsciiMasks ascii = classify_ascii(p);
  Classes classes{};
  classes.letter = ascii.letter;
  classes.number = ascii.number;
  classes.space = ascii.space;
  classes.blank = ascii.blank;
  classes.newline = ascii.newline;
  classes.apostrophe = ascii.apostrophe;
  classes.high = ascii.high;
  if constexpr (kIsDetailed<Classes>) {
    const AsciiDetails details = find_ascii_details(p);
    classes.capital = ascii.letter & ~details.bit5;
    classes.small = ascii.letter & details.bit5;
    classes.slash = details.slash;
    classes.punctuation =
        ~(ascii.letter | ascii.number | ascii.space | ascii.high | details.control);
  }
  if constexpr (kHasStops<Classes>) classes.stop = find_ascii_stops(p);
  const uint64_t inside = bits_below(left);
  if (ascii.high & inside) {
    add_non_ascii(p, inside, previous, classes);
  } else {
    classes.malformed = previous.carry.continuation;
  }
  if (PENSTOK_UNLIKELY(left < kMaskBytes)) {
    classes.letter &= inside;
    classes.number &= inside;
    classes.blank &= inside;
    classes.newline &= inside;
    classes.apostrophe &= inside;
    classes.wide_space &= inside;
    if constexpr (kIsDetailed<Classes>) {
      classes.mark &= inside;
      classes.punctuation &= inside;
      classes.kana_han &= inside;
      classes.slash &= inside;
    }
    if constexpr (kHasStops<Classes>) classes.stop &= inside;
    classes.space |= ~inside;
  }
  return classes;
}

// Classifies 64 bytes inside a document; false if they are not ASCII.
PENSTOK_INLINE bool classify_if_ascii(const uint8_t* p, AsciiClasses& classes) {
  const AsciiMasks ascii = classify_ascii(p);
  const AsciiDetails details = find_ascii_details(p);
  classes.letter = ascii.letter;
  classes.number = ascii.number;
  classes.space = ascii.space;
  classes.blank = ascii.blank;
  classes.newline = ascii.newline;
  classes.apostrophe = ascii.apostrophe;
  classes.capital = ascii.letter & ~details.bit5;
  classes.small = ascii.letter & details.bit5;
  classes.slash = details.slash;
  return ascii.high == 0;
}

template <class Classes>
PENSTOK_INLINE Classes after_the_end() {
  Classes classes{};
  classes.space = ~uint64_t{0};
  return classes;
}

// First bytes of non-ASCII white space that is not followed by white space; or by something else
// that makes it a piece with the white space before it, if `space` includes that. `next_space` are
// the 64 bytes after them.
PENSTOK_INLINE uint64_t last_wide_spaces(uint64_t wide_space, uint64_t space, uint64_t next_space,
                                         const uint8_t* p) {
  uint64_t last = 0;
  for (uint64_t rest = wide_space; rest != 0; rest &= rest - 1) {
    const unsigned i = lowest_bit(rest);
    const unsigned after = i + (p[i] < 0xE0 ? 2 : 3);
    const uint64_t space_after = after < 64 ? space >> after : next_space >> (after - 64);
    if (!(space_after & 1)) last |= uint64_t{1} << i;
  }
  return last;
}

}  // namespace penstok::kernel::PENSTOK_ISA
