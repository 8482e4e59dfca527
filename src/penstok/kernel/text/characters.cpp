#include "text/characters.hpp"

#include <algorithm>

#include "bytes.hpp"

namespace penstok::kernel {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101;
// Eight sums of bytes stay in the bytes of a word for so many words. Compilers add two words or
// more at once.
constexpr ptrdiff_t kMaxWords = 255;

// Sets the lowest bit of every byte that continues a character: 10xxxxxx.
uint64_t continuations(uint64_t bytes) { return (bytes >> 7) & ~(bytes >> 6) & kOnes; }

uint64_t sum_of_bytes(uint64_t sums) {
  constexpr uint64_t kEven = 0x00FF00FF00FF00FF;
  return (((sums & kEven) + ((sums >> 8) & kEven)) * 0x0001000100010001) >> 48;
}

uint64_t count_run(const uint8_t* at, const uint8_t* end) {
  uint64_t total = static_cast<uint64_t>(end - at);
  while (end - at >= 8) {
    const ptrdiff_t num_words = std::min((end - at) / 8, kMaxWords);
    uint64_t sums = 0;
    for (ptrdiff_t i = 0; i < num_words; ++i) sums += continuations(load64(at + 8 * i));
    total -= sum_of_bytes(sums);
    at += 8 * num_words;
  }
  for (; at != end; ++at) total -= (*at & 0xC0) == 0x80;
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
