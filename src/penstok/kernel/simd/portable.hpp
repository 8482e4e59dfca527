// The machine-dependent steps in plain C++. Loops over 64 bytes are written so that compilers turn
// them into whatever vectors the machine has (SSE2, NEON).
#pragma once

#include "bytes.hpp"
#include "simd/byte_masks.hpp"
#include "simd/plain_steps.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Bit 8 * i + `bit` of the eight words becomes bit i of the mask.
PENSTOK_INLINE uint64_t collect(const uint64_t (&words)[8], unsigned bit) {
  uint64_t mask = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const uint64_t ones = words[i] >> bit & 0x0101010101010101ull;
    // The product's top byte gathers the lowest bit of each byte, first byte lowest.
    mask |= (ones * 0x0102040810204080ull >> 56) << (8 * i);
  }
  return mask;
}

PENSTOK_INLINE AsciiMasks classify_ascii(const uint8_t* p) {
  alignas(64) uint8_t flags[64];
  for (unsigned i = 0; i < 64; ++i) {
    const uint8_t c = p[i];
    const uint8_t letter = static_cast<uint8_t>((c | 0x20) - 'a') < 26 ? 1 : 0;
    const uint8_t number = static_cast<uint8_t>(c - '0') < 10 ? 2 : 0;
    const uint8_t blank = c == ' ' ? 4 + 8 : 0;
    const uint8_t other_space = static_cast<uint8_t>(c - 9) < 5 ? 4 : 0;
    const uint8_t apostrophe = c == '\'' ? 16 : 0;
    const uint8_t newline = c == '\n' || c == '\r' ? 32 : 0;
    flags[i] = letter | number | blank | other_space | apostrophe | newline | (c & 0x80);
  }
  uint64_t words[8], any = 0;
  std::memcpy(words, flags, sizeof words);
  for (uint64_t word : words) any |= word;
  const auto has = [&](unsigned bit) { return (any >> bit & 0x0101010101010101ull) != 0; };
  AsciiMasks masks;
  masks.letter = collect(words, 0);
  masks.number = has(1) ? collect(words, 1) : 0;
  masks.space = collect(words, 2);
  masks.blank = collect(words, 3);
  masks.apostrophe = has(4) ? collect(words, 4) : 0;
  masks.newline = has(5) ? collect(words, 5) : 0;
  masks.high = has(7) ? collect(words, 7) : 0;
  return masks;
}

PENSTOK_INLINE AsciiDetails find_ascii_details(const uint8_t* p) {
  alignas(64) uint8_t flags[64];
  for (unsigned i = 0; i < 64; ++i) {
    const bool is_control = p[i] < 0x20 || p[i] == 0x7F;
    flags[i] = static_cast<uint8_t>((p[i] & 0x20) | (p[i] == '/' ? 1 : 0) | (is_control ? 2 : 0));
  }
  uint64_t words[8];
  std::memcpy(words, flags, sizeof words);
  return {collect(words, 5), collect(words, 0), collect(words, 1)};
}

PENSTOK_INLINE uint64_t find_ascii_stops(const uint8_t* p) {
  alignas(64) uint8_t flags[64];
  for (unsigned i = 0; i < 64; ++i) flags[i] = p[i] < 0x80 && is_stop(p[i]) ? 1 : 0;
  uint64_t words[8];
  std::memcpy(words, flags, sizeof words);
  return collect(words, 0);
}

PENSTOK_INLINE WideStops find_wide_stops(const uint8_t* p, const HighMasks& masks) {
  WideStops stops{};
  for (uint64_t rest = masks.lead & ~masks.lead4; rest != 0; rest &= rest - 1) {
    const uint64_t bit = rest & -rest;
    const uint8_t* at = p + lowest_bit(rest);
    if (masks.lead3 & bit) {
      stops.three |= is_stop(code_point3(at)) ? bit : 0;
    } else {
      stops.two |= is_stop(code_point2(at)) ? bit : 0;
    }
  }
  return stops;
}

PENSTOK_INLINE HighMasks classify_high(const uint8_t* p, uint64_t high) {
  HighMasks masks{};
  for (uint64_t rest = high; rest != 0; rest &= rest - 1) {
    const unsigned i = lowest_bit(rest);
    const uint64_t bit = uint64_t{1} << i;
    const uint8_t c = p[i];
    if (c < 0xC0) continue;
    masks.lead |= bit;
    masks.lead3 |= c >= 0xE0 ? bit : 0;
    masks.lead4 |= c >= 0xF0 ? bit : 0;
    const uint8_t kind = unicode_tables::kLeadKind[c - 0xC0];
    masks.letter2 |= kind == kLeadLetter2 ? bit : 0;
    masks.letter3 |= kind == kLeadLetter3 ? bit : 0;
    masks.mixed |= kind == kLeadMixed ? bit : 0;
    masks.malformed |= c < 0xC2 || c > 0xF4 ? bit : 0;
  }
  return masks;
}

PENSTOK_INLINE uint64_t find_han(const uint8_t* p, uint64_t lead3) {
  uint64_t found = 0;
  for (uint64_t rest = lead3; rest != 0; rest &= rest - 1) {
    const uint32_t code_point = code_point3(p + lowest_bit(rest));
    const bool is_found = code_point >= 0x3400 && code_point <= 0x9FFF && is_han(code_point);
    found |= is_found ? rest & -rest : 0;
  }
  return found;
}

PENSTOK_INLINE DetailedHighMasks classify_high_detailed(const uint8_t* p, uint64_t high) {
  DetailedHighMasks masks{classify_high(p, high), 0, 0, 0};
  masks.mixed = masks.lead & ~masks.letter3 & ~masks.malformed;
  masks.letter2 = 0;
  for (uint64_t rest = masks.lead3 & ~masks.lead4; rest != 0; rest &= rest - 1) {
    const uint32_t code_point = code_point3(p + lowest_bit(rest));
    const bool is_found = (code_point >= 0x3040 && code_point <= 0x30FF) ||
                          (code_point >= 0x4E00 && code_point <= 0x9FA5);
    masks.kana_han3 |= is_found ? rest & -rest : 0;
  }
  return masks;
}

}  // namespace penstok::kernel::PENSTOK_ISA
