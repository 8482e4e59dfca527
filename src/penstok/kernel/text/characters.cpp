#include "text/characters.hpp"

#include <algorithm>

namespace penstok::kernel {
namespace {

// Sums of bytes stay in bytes for this long, so that compilers add 16 or more at once: 18 GB/s with
// the instructions that every x86-64 has.
constexpr ptrdiff_t kStep = 255 * 16;

uint64_t count_run(const uint8_t* at, const uint8_t* end) {
  uint64_t total = 0;
  while (at != end) {
    const uint8_t* const stop = at + std::min(end - at, kStep);
    uint8_t sums[16] = {};
    for (; stop - at >= 16; at += 16) {
      for (size_t i = 0; i < 16; ++i) sums[i] += (at[i] & 0xC0) != 0x80;
    }
    for (const uint8_t sum : sums) total += sum;
    for (; at != stop; ++at) total += (*at & 0xC0) != 0x80;
  }
  return total;
}

}  // namespace

uint64_t count_characters(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                          size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) total += count_run(text + starts[i], text + ends[i]);
  return total;
}

}  // namespace penstok::kernel
