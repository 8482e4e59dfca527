// The machine-dependent steps for ARM (AArch64, which always has NEON).
//
// Only the byte classes use vectors. Pieces are merged by merge_plain.hpp: NEON has no instruction
// that finds the index of the smallest number.
#pragma once

#include <arm_neon.h>

#include "simd/byte_masks.hpp"
#include "simd/half_byte_tables.hpp"
#include "simd/letter_pages.hpp"
#include "simd/plain_steps.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// 64 bytes as four vectors, and the masks that comparing them gives.
struct Bytes64 {
  uint8x16_t parts[4];

  PENSTOK_INLINE explicit Bytes64(const uint8_t* p)
      : parts{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)} {}

  PENSTOK_INLINE uint64_t top_bits() const { return bits<7>(); }
  template <unsigned kBit>  // the bits of that number, one per byte
  PENSTOK_INLINE uint64_t bits() const {
    return mask_where([](uint8x16_t v) { return vtstq_u8(v, vdupq_n_u8(1u << kBit)); });
  }
  template <unsigned kBits>  // which bytes have any of these bits
  PENSTOK_INLINE uint64_t any() const {
    return mask_where([](uint8x16_t v) { return vtstq_u8(v, vdupq_n_u8(kBits)); });
  }
  PENSTOK_INLINE uint64_t equal(uint8_t value) const {
    return mask_where([=](uint8x16_t v) { return vceqq_u8(v, vdupq_n_u8(value)); });
  }
  PENSTOK_INLINE uint64_t at_least(uint8_t value) const {
    return mask_where([=](uint8x16_t v) { return vcgeq_u8(v, vdupq_n_u8(value)); });
  }
  PENSTOK_INLINE uint64_t at_most(uint8_t value) const {
    return mask_where([=](uint8x16_t v) { return vcleq_u8(v, vdupq_n_u8(value)); });
  }

 private:
  // There is no "move mask": each byte keeps one bit, its index in its group of eight, and adding
  // neighbours three times leaves one byte for each eight.
  template <class Test>
  PENSTOK_INLINE uint64_t mask_where(Test test) const {
    const uint8x16_t index_bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    uint8x16_t found[4];
    for (unsigned i = 0; i < 4; ++i) found[i] = vandq_u8(test(parts[i]), index_bit);
    const uint8x16_t sums =
        vpaddq_u8(vpaddq_u8(found[0], found[1]), vpaddq_u8(found[2], found[3]));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
  }
};

PENSTOK_INLINE Bytes64 look_up(const HalfByteTables& tables, const Bytes64& text) {
  const uint8x16_t low = vld1q_u8(tables.low), high = vld1q_u8(tables.high);
  Bytes64 kinds = text;
  for (uint8x16_t& v : kinds.parts) {
    v = vandq_u8(vqtbl1q_u8(low, vandq_u8(v, vdupq_n_u8(0x0F))), vqtbl1q_u8(high, vshrq_n_u8(v, 4)));
  }
  return kinds;
}

}  // namespace penstok::kernel::PENSTOK_ISA

#include "simd/classify_half_bytes.hpp"
