// Classifies bytes with half_byte_tables.hpp. Included by avx2.hpp and neon.hpp, after `Bytes64`
// and `look_up`.
#pragma once

namespace penstok::kernel::PENSTOK_ISA {

PENSTOK_INLINE AsciiMasks classify_ascii(const uint8_t* p) {
  const Bytes64 v(p);
  const Bytes64 kind = look_up(kAsciiTables, v);
  AsciiMasks masks;
  masks.high = v.top_bits();
  masks.letter = kind.any<1 | 2>();
  masks.number = kind.bits<2>();
  masks.blank = kind.bits<4>();
  masks.space = kind.any<8 | 16>();
  masks.apostrophe = kind.bits<5>();
  masks.newline = kind.bits<6>();
  return masks;
}

PENSTOK_INLINE uint64_t find_ascii_stops(const uint8_t* p) {
  return look_up(kStopTables, Bytes64(p)).any<0xFF>();
}

PENSTOK_INLINE void find_lead_kinds(const Bytes64& text, HighMasks& masks) {
  const Bytes64 kind = look_up(kLeadTables, text);
  masks.letter2 = kind.any<1 | 4>();
  masks.letter3 = kind.bits<1>();
  masks.mixed = kind.any<0xF0>();
}

PENSTOK_INLINE ThirdMasks look_up_third(const LetterPage& page, const Bytes64& third) {
  const Bytes64 kind = look_up(page.halves, third);
  return {kind.any<0x0F>(), kind.any<0xF0>()};
}

}  // namespace penstok::kernel::PENSTOK_ISA

#include "simd/classify_high.hpp"
