#include "bpe/whole_tokens.hpp"

#include <algorithm>

namespace penstok::kernel {

WholeTokens::WholeTokens(const std::vector<Token>& tokens) {
  if (tokens.empty()) return;
  size_t bytes = kReadSlack;
  for (const Token& token : tokens) {
    bytes += token.bytes.size();
    longest_ = std::max(longest_, token.bytes.size());
  }
  size_t slots = 16;
  while (slots < 4 * tokens.size()) slots *= 2;  // most look-ups end at a free first slot
  mask_ = slots - 1;
  slot_buffer_ = Buffer(slots * sizeof(Slot));
  byte_buffer_ = Buffer(bytes);
  uint32_t offset = 0;
  for (const Token& token : tokens) {
    uint8_t* const to = byte_buffer_.as<uint8_t>() + offset;
    const auto length = static_cast<uint32_t>(token.bytes.size());
    std::memcpy(to, token.bytes.data(), length);
    size_t at = hash(to, length) & mask_;
    while (slot_buffer_.as<Slot>()[at].length != 0) at = (at + 1) & mask_;
    slot_buffer_.as<Slot>()[at] = {length, offset, token.id};
    offset += length;
  }
}

}  // namespace penstok::kernel
