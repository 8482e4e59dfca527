// Loads, bit operations and the macros that every other file of the kernel uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// The hot files are compiled once per instruction set. A shared inline function that the compiler
// does not inline ends up in the library once, compiled for whichever set the linker sees first,
// and crashes on older machines. With forced inlining the linker has nothing to choose from.
#define PENSTOK_INLINE inline __attribute__((always_inline))

#define PENSTOK_LIKELY(x) __builtin_expect(!!(x), 1)
#define PENSTOK_UNLIKELY(x) __builtin_expect(!!(x), 0)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel reads several bytes at once and supports only little-endian machines"
#endif

namespace penstok::kernel {

using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

// How far past the end of a piece the hot loops may read (never write). The encoder makes sure that
// those bytes exist: pieces near the end of the caller's buffer are moved to a padded copy.
constexpr size_t kReadSlack = 64;

// How many ids past the last one the hot loops may write; the caller's buffer is that much larger.
constexpr size_t kWriteSlack = 64;

PENSTOK_INLINE uint64_t load64(const void* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

PENSTOK_INLINE unsigned lowest_bit(uint64_t mask) {  // mask must not be 0
  return static_cast<unsigned>(__builtin_ctzll(mask));
}

PENSTOK_INLINE unsigned count_bits(uint64_t mask) {
  return static_cast<unsigned>(__builtin_popcountll(mask));
}

PENSTOK_INLINE uint64_t bits_below(size_t count) {  // the lowest `count` bits, count <= 64
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Code points of well-formed UTF-8 of a known length.
PENSTOK_INLINE uint32_t code_point2(const uint8_t* p) {
  return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
}
PENSTOK_INLINE uint32_t code_point3(const uint8_t* p) {
  return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
}
PENSTOK_INLINE uint32_t code_point4(const uint8_t* p) {
  return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// The first character of well-formed UTF-8.
struct Character {
  uint32_t code_point;
  unsigned bytes;
};
PENSTOK_INLINE Character character_at(const uint8_t* p) {
  if (*p < 0x80) return {*p, 1};
  if (*p < 0xE0) return {code_point2(p), 2};
  if (*p < 0xF0) return {code_point3(p), 3};
  return {code_point4(p), 4};
}

}  // namespace penstok::kernel
