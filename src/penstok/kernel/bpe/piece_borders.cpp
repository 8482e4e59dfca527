#include "bpe/piece_borders.hpp"

#include <algorithm>

namespace penstok::kernel {
namespace {

unsigned kind_of(uint32_t code_point) {
  if (code_point == ' ') return kBlank;
  const bool is_ascii = code_point < 0x80;
  switch (class_of(code_point)) {
    case kClassLetter:
      return is_ascii ? kAsciiLetter : kWideLetter;
    case kClassNumber:
      return is_ascii ? kAsciiNumber : kWideNumber;
    case kClassSpace:
      return is_ascii ? kAsciiWhite : kWideWhite;
    default:
      return is_ascii ? kAsciiOther : kWideOther;
  }
}

// A token that is a part of a character has nothing after it.
bool is_part(const std::string& bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  if (lead < 0x80) return false;
  return bytes.size() < (lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : 4u);
}

}  // namespace

PieceBorders::PieceBorders(const std::vector<Token>& tokens) {
  std::fill_n(&free[0][0], kNumKinds * kNumKinds, ~uint64_t{0});
  for (const Token& token : tokens) {
    if (is_part(token.bytes)) continue;
    const auto* p = reinterpret_cast<const uint8_t*>(token.bytes.data());
    const uint8_t* const end = p + token.bytes.size();
    Character character = character_at(p);
    unsigned kind = kind_of(character.code_point);
    for (p += character.bytes; p < end; p += character.bytes) {
      character = character_at(p);
      const unsigned next_kind = kind_of(character.code_point);
      free[kind][next_kind] = 0;
      kind = next_kind;
    }
  }
}

}  // namespace penstok::kernel
