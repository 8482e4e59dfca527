#include "bpe/junctions.hpp"

#include <algorithm>

namespace penstok::kernel {
namespace {

void add(uint64_t (&set)[4], uint8_t byte) {
  set[byte >> 6] |= uint64_t{1} << (byte & 63);
}

void add_all(uint64_t (&set)[4]) {
  std::fill_n(set, 4, ~uint64_t{0});
}

}  // namespace

Junctions::Junctions(const Vocabulary& vocabulary) {
  for (const Token& token : vocabulary.tokens()) add_token(token.bytes);
  for (const Token& token : vocabulary.whole_tokens()) {
    add(whole_starts_, static_cast<uint8_t>(token.bytes.front()));
    add(whole_ends_, static_cast<uint8_t>(token.bytes.back()));
  }
}

void Junctions::add_token(const std::string& bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    const uint8_t left = at(i), right = at(i + 1);
    add(touching_[left], right);
    if ((left & 0xC0) != 0x80 || right < 0xC0) continue;
    const unsigned number = number_of(left, right);
    if (i > 0) {
      add(before_[number], at(i - 1));
    } else {
      add_all(before_[number]);
    }
    if (i + 2 < bytes.size()) {
      add(after_[number], at(i + 2));
    } else {
      add_all(after_[number]);
    }
  }
}

unsigned Junctions::number_of(uint8_t left, uint8_t right) {
  uint8_t& number = number_[left & 63][right - 0xC0];
  if (number == 0) {
    if (last_number_ < kNumbers - 1) ++last_number_;
    number = static_cast<uint8_t>(last_number_);
    if (last_number_ == kNumbers - 1) {
      add_all(before_[number]);
      add_all(after_[number]);
    }
  }
  return number;
}

}  // namespace penstok::kernel
