// Fast search for the bytes that have a meaning in CSV.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

constexpr uint64_t kEveryByte = 0x0101010101010101ull;
constexpr size_t kCsvStep = 8;

// In the result the lowest set bit marks the first of eight bytes that equals `byte`; 0: none does.
// A borrow sets false bits too, but only above a true one.
PENSTOK_INLINE uint64_t mark_byte(uint64_t word, uint8_t byte) {
  const uint64_t differing = word ^ kEveryByte * byte;
  return (differing - kEveryByte) & ~differing & kEveryByte * 0x80;
}

// The first `byte` from `at` on; `end` if there is none. A call of memchr costs as much as a few
// steps here, so it is used only for larger distances.
PENSTOK_INLINE const uint8_t* find_byte(const uint8_t* at, const uint8_t* end, uint8_t byte) {
  for (size_t step = 0; step < 4; ++step) {
    if (static_cast<size_t>(end - at) < kCsvStep) break;
    const uint64_t marks = mark_byte(load64(at), byte);
    if (marks != 0) return at + lowest_bit(marks) / 8;
    at += kCsvStep;
  }
  if (at == end) return end;
  const void* const found = std::memchr(at, byte, static_cast<size_t>(end - at));
  return found == nullptr ? end : static_cast<const uint8_t*>(found);
}

// The first of two bytes from `at` on; `end` if there is none.
PENSTOK_INLINE const uint8_t* find_either(const uint8_t* at, const uint8_t* end, uint8_t first,
                                          uint8_t second) {
  while (static_cast<size_t>(end - at) >= kCsvStep) {
    const uint64_t word = load64(at);
    const uint64_t marks = mark_byte(word, first) | mark_byte(word, second);
    if (marks != 0) return at + lowest_bit(marks) / 8;
    at += kCsvStep;
  }
  while (at != end && *at != first && *at != second) ++at;
  return at;
}

}  // namespace penstok::kernel
