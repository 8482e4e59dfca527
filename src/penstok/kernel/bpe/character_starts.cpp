#include "bpe/character_starts.hpp"

#include <algorithm>

namespace penstok::kernel {
namespace {

bool is_continuation(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

size_t length_from(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The position after `begin` where a character begins or the token ends.
size_t border_after(const std::string& bytes, size_t begin) {
  size_t i = begin + 1;
  while (i < bytes.size() && is_continuation(static_cast<uint8_t>(bytes[i]))) ++i;
  return i;
}

bool is_whole_character(const uint8_t* p, size_t length) {
  return !is_continuation(p[0]) && length == length_from(p[0]);
}

}  // namespace

// Tokens that are matched only as whole pieces are included, which is harmless.
CharacterBorders::CharacterBorders(const Vocabulary& vocabulary)
    : words_((size_t{1} << kBits) / 8) {
  for (const Token& token : vocabulary.tokens()) add_token(token.bytes);
}

void CharacterBorders::add_token(const std::string& bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto side = [&](size_t begin, size_t end, uint8_t at_border) {
    return is_whole_character(p + begin, end - begin) ? character_at(p + begin).code_point
                                                      : part(at_border);
  };
  size_t begin = 0;
  for (size_t border = border_after(bytes, 0), end; border < bytes.size(); border = end) {
    end = border_after(bytes, border);
    const uint32_t number =
        number_of(side(begin, border, p[border - 1]), side(border, end, p[border]));
    words_.as<uint32_t>()[number >> 5] |= uint32_t{1} << (number & 31);
    begin = border;
  }
}

std::vector<uint32_t> lowest_ranks_around_characters(const Vocabulary& vocabulary) {
  std::vector<uint32_t> lowest(0x10000, kNoMerge);
  for (const Token& token : vocabulary.tokens()) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(token.bytes.data());
    size_t begin = 0;
    for (size_t end; begin < token.bytes.size(); begin = end) {
      end = border_after(token.bytes, begin);
      const size_t length = end - begin;
      const bool is_alone = length == token.bytes.size();
      if (!is_alone && (length == 2 || length == 3) && length == length_from(bytes[begin])) {
        const uint32_t c = length == 2 ? code_point2(bytes + begin) : code_point3(bytes + begin);
        lowest[c] = std::min(lowest[c], token.id);
      }
    }
  }
  return lowest;
}

}  // namespace penstok::kernel
