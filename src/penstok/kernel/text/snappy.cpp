#include "text/snappy.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace penstok::kernel {
namespace {

// Copies, and the literals whose length is in their tag, have up to 64 bytes. That many are always
// written, which is faster than finding out how many are needed; the next ones overwrite the rest.
constexpr size_t kRoom = 64;
constexpr size_t kStep = 16;
// The largest length of a literal in its tag; above it, the tag has the number of bytes that follow.
constexpr size_t kMaxTagLength = 60;

// What a tag says of a short element; length 0 for literals and offsets that take more bytes.
struct Tag {
  uint8_t length;
  uint8_t num_bytes;     // from this tag to the next one
  uint16_t offset;       // of a copy, the part that is in the tag
  uint16_t offset_mask;  // of the two bytes behind it; 0 for literals
};

constexpr std::array<Tag, 256> make_tags() {
  std::array<Tag, 256> tags{};
  for (size_t tag = 0; tag < tags.size(); ++tag) {
    const auto upper = static_cast<uint8_t>((tag >> 2) + 1);
    if ((tag & 3) == 0 && upper <= kMaxTagLength) {
      tags[tag] = {upper, static_cast<uint8_t>(1 + upper), 0, 0};
    } else if ((tag & 3) == 1) {
      const auto length = static_cast<uint8_t>((tag >> 2 & 7) + 4);
      tags[tag] = {length, 2, static_cast<uint16_t>(tag >> 5 << 8), 0xFF};
    } else if ((tag & 3) == 2) {
      tags[tag] = {upper, 3, 0, 0xFFFF};
    }
  }
  return tags;
}
constexpr std::array<Tag, 256> kTags = make_tags();

void require(bool condition) {
  if (!condition) throw std::invalid_argument("the compressed data are damaged");
}

// A tag and the bytes that belong to it.
struct Element {
  bool is_literal;
  size_t num_bytes;
  size_t length;
  size_t offset;
};

size_t read_number(const uint8_t* at, size_t num_bytes) {
  size_t value = 0;
  for (size_t i = 0; i < num_bytes; ++i) value |= static_cast<size_t>(at[i]) << (8 * i);
  return value;
}

// Reads an element of which `left` bytes are there; its num_bytes is larger if some are missing.
PENSTOK_INLINE Element read_element(const uint8_t* at, size_t left) {
  const Tag tag = kTags[at[0]];
  const bool is_literal = (at[0] & 3) == 0, is_short = tag.length > 0;
  const size_t upper = (at[0] >> 2) + 1;
  // A literal in the table has its length in the tag; its num_bytes include the text.
  const size_t extra = is_literal ? (is_short ? 0 : upper - kMaxTagLength)
                                  : (is_short ? tag.num_bytes - size_t{1} : 4);
  if (extra >= left) return {is_literal, 1 + extra, 0, 0};
  const size_t number = read_number(at + 1, extra);
  if (is_literal) return {true, 1 + extra, is_short ? tag.length : number + 1, 0};
  return {false, 1 + extra, is_short ? tag.length : upper, tag.offset + number};
}

// Decompresses short elements until the next is of another kind, or the data or the room nearly end.
// It does not branch on whether an element is a literal, which the processor could not predict.
PENSTOK_INLINE void copy_short(const uint8_t* data, size_t data_bytes, uint8_t* out,
                               size_t out_bytes, SnappyPosition& position) {
  auto [from, to, num_open] = position;
  while (data_bytes - from > kRoom && out_bytes - to >= kRoom) {
    const Tag tag = kTags[data[from]];
    uint16_t next = 0;
    std::memcpy(&next, data + from + 1, sizeof next);
    const size_t offset = tag.offset + (next & tag.offset_mask);
    const bool is_copy = tag.offset_mask != 0;
    const bool is_far = offset > to, is_near = offset < kStep;
    if (PENSTOK_UNLIKELY((tag.length == 0) | (is_copy & (is_far | is_near)))) break;
    const auto choice = -static_cast<uintptr_t>(is_copy);
    const auto literal = reinterpret_cast<uintptr_t>(data + from + 1);
    const auto written = reinterpret_cast<uintptr_t>(out + to) - offset;
    const auto* source = reinterpret_cast<const uint8_t*>((written & choice) | (literal & ~choice));
    for (size_t i = 0; i < kRoom; i += kStep) std::memcpy(out + to + i, source + i, kStep);
    to += tag.length;
    from += tag.num_bytes;
  }
  position = {from, to, num_open};
}

}  // namespace

SnappyPosition decompress_snappy(const uint8_t* data, size_t data_bytes, uint8_t* out,
                                 size_t out_bytes, SnappyPosition position) {
  auto& [from, to, num_open] = position;
  if (from > data_bytes || to > out_bytes) throw std::invalid_argument("a position is outside");
  while (from < data_bytes) {
    if (num_open > 0) {
      const size_t length = std::min({num_open, data_bytes - from, out_bytes - to});
      std::memcpy(out + to, data + from, length);
      from += length;
      to += length;
      num_open -= length;
      if (num_open > 0) break;
      continue;
    }
    copy_short(data, data_bytes, out, out_bytes, position);
    if (out_bytes - to < kRoom) break;
    const size_t left = data_bytes - from;
    const Element element = read_element(data + from, left);
    if (element.num_bytes > left) break;
    from += element.num_bytes;
    if (!element.is_literal) {
      require(element.offset > 0 && element.offset <= to);
      for (size_t end = to + element.length; to < end; ++to) out[to] = out[to - element.offset];
    } else {
      num_open = element.length;
    }
  }
  return position;
}

}  // namespace penstok::kernel
