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

// The positions inside a token where a character begins, and its end.
std::vector<size_t> borders_of(const std::string& bytes) {
  std::vector<size_t> borders;
  for (size_t i = 1; i < bytes.size(); ++i) {
    if (!is_continuation(static_cast<uint8_t>(bytes[i]))) borders.push_back(i);
  }
  borders.push_back(bytes.size());
  return borders;
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
  const std::vector<size_t> borders = borders_of(bytes);
  size_t begin = 0;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const size_t border = borders[i], end = borders[i + 1];
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
    for (size_t end : borders_of(token.bytes)) {
      const size_t length = end - begin;
      const bool is_alone = length == token.bytes.size();
      if (!is_alone && (length == 2 || length == 3) && length == length_from(bytes[begin])) {
        const uint32_t c = length == 2 ? code_point2(bytes + begin) : code_point3(bytes + begin);
        lowest[c] = std::min(lowest[c], token.id);
      }
      begin = end;
    }
  }
  return lowest;
}

}  // namespace penstok::kernel
