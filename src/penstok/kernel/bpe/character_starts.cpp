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
CharacterBorders::CharacterBorders(const Vocabulary& vocabulary, CharacterStart* starts)
    : pairs_((size_t{1} << kBits) / 8) {
  preceding_[kAnyByte] = following_[kAnyByte] = ~ByteSet{0};
  for (const Token& token : vocabulary.tokens()) add_token(token.bytes, starts);
}

void CharacterBorders::add_token(const std::string& bytes, CharacterStart* starts) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto add = [](ByteSet& set, uint8_t byte) { set |= ByteSet{1} << (byte & 63); };
  // Adds a byte to the set of a character; `number` is what `starts` has for it.
  const auto add_numbered = [&](ByteSet* sets, uint8_t& number, uint8_t& last, uint8_t byte) {
    if (number == 0) number = last < kAnyByte ? ++last : kAnyByte;
    add(sets[number], byte);
  };
  size_t begin = 0;
  for (size_t border = border_after(bytes, 0), end; border < bytes.size(); border = end) {
    end = border_after(bytes, border);
    const bool whole_left = is_whole_character(p + begin, border - begin);
    const bool whole_right = is_whole_character(p + border, end - border);
    const uint32_t left = whole_left ? character_at(p + begin).code_point : 0;
    const uint32_t right = whole_right ? character_at(p + border).code_point : 0;
    if (whole_left && whole_right) {
      const uint32_t number = pair_number(left, right);
      pairs_.as<uint32_t>()[number >> 5] |= uint32_t{1} << (number & 31);
    } else if (!whole_left && !whole_right) {
      add(preceding_parts_[p[border] & 63], p[border - 1]);
    } else if (whole_left && left < 0x10000) {
      add_numbered(following_, starts[left].followed, num_following_, p[border]);
    } else if (whole_right && right < 0x10000) {
      add_numbered(preceding_, starts[right].preceded, num_preceding_, p[border - 1]);
    }
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
