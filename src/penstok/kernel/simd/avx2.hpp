// The machine-dependent steps for AVX2.
#pragma once

#include <immintrin.h>

#include "bpe/piece_table.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/byte_masks.hpp"
#include "simd/half_byte_tables.hpp"
#include "simd/letter_pages.hpp"
#include "simd/sure_merges.hpp"
#include "simd/x86_steps.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

PENSTOK_INLINE __m256i bytes256(unsigned value) {
  return _mm256_set1_epi8(static_cast<char>(value));
}

// 64 bytes as two halves, and the masks that comparing them gives.
struct Bytes64 {
  __m256i low, high;

  PENSTOK_INLINE explicit Bytes64(const uint8_t* p) : low(load256(p)), high(load256(p + 32)) {}
  PENSTOK_INLINE Bytes64(__m256i l, __m256i h) : low(l), high(h) {}

  PENSTOK_INLINE uint64_t top_bits() const {
    return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
           uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(high))} << 32;
  }
  template <unsigned kBit>  // the bits of that number, one per byte
  PENSTOK_INLINE uint64_t bits() const {
    return Bytes64(_mm256_slli_epi16(low, 7 - kBit), _mm256_slli_epi16(high, 7 - kBit)).top_bits();
  }
  template <unsigned kBits>  // which bytes have any of these bits
  PENSTOK_INLINE uint64_t any() const {
    const __m256i wanted = bytes256(kBits), zero = _mm256_setzero_si256();
    const __m256i l = _mm256_and_si256(low, wanted), h = _mm256_and_si256(high, wanted);
    if constexpr (kBits < 0x80) {  // positive as signed bytes
      return Bytes64(_mm256_cmpgt_epi8(l, zero), _mm256_cmpgt_epi8(h, zero)).top_bits();
    } else {
      return ~Bytes64(_mm256_cmpeq_epi8(l, zero), _mm256_cmpeq_epi8(h, zero)).top_bits();
    }
  }
  PENSTOK_INLINE uint64_t equal(unsigned value) const {
    const __m256i v = bytes256(value);
    return Bytes64(_mm256_cmpeq_epi8(low, v), _mm256_cmpeq_epi8(high, v)).top_bits();
  }
  PENSTOK_INLINE uint64_t at_least(unsigned value) const {
    const __m256i v = bytes256(value);
    return Bytes64(_mm256_cmpeq_epi8(_mm256_max_epu8(low, v), low),
                   _mm256_cmpeq_epi8(_mm256_max_epu8(high, v), high))
        .top_bits();
  }
  PENSTOK_INLINE uint64_t at_most(unsigned value) const {
    const __m256i v = bytes256(value);
    return Bytes64(_mm256_cmpeq_epi8(_mm256_min_epu8(low, v), low),
                   _mm256_cmpeq_epi8(_mm256_min_epu8(high, v), high))
        .top_bits();
  }
};

PENSTOK_INLINE __m256i look_up(const HalfByteTables& tables, __m256i v) {
  const __m256i low =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(tables.low)));
  const __m256i high =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(tables.high)));
  const __m256i nibble = bytes256(0x0F);
  return _mm256_and_si256(
      _mm256_shuffle_epi8(low, _mm256_and_si256(v, nibble)),
      _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble)));
}
PENSTOK_INLINE Bytes64 look_up(const HalfByteTables& tables, const Bytes64& v) {
  return {look_up(tables, v.low), look_up(tables, v.high)};
}

// Row b: the indexes of the bits of b.
struct BitIndexes {
  alignas(8) uint8_t rows[256][8];
};
constexpr BitIndexes make_bit_indexes() {
  BitIndexes indexes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    unsigned count = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if (byte >> bit & 1) indexes.rows[byte][count++] = static_cast<uint8_t>(bit);
    }
  }
  return indexes;
}
constexpr BitIndexes kBitIndexes = make_bit_indexes();

// Writes base + i for each bit i (and overwrites a few entries after them); returns their number.
// Eight bits per step and no branch: the number of bits is unpredictable.
PENSTOK_INLINE unsigned store_positions(uint32_t* to, uint64_t mask, uint32_t base) {
  uint32_t* end = to;
  for (unsigned bit = 0; bit < 64; bit += 8) {
    const uint64_t byte = mask >> bit & 0xFF;
    const __m128i indexes =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kBitIndexes.rows[byte]));
    const __m256i bases = _mm256_set1_epi32(static_cast<int>(base + bit));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(end),
                        _mm256_add_epi32(_mm256_cvtepu8_epi32(indexes), bases));
    end += count_bits(byte);
  }
  return static_cast<unsigned>(end - to);
}

// Which of the two ways of a line holds the key: 0, 1, or 2 for neither.
PENSTOK_INLINE unsigned find_way(const PieceKey* keys, const PieceKey& key) {
  const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(keys));
  const __m256i wanted =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(&key)));
  const int equal = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(both, wanted)));
  return kWayOfHalves >> (2 * equal) & 3;
}

// ---- 16 or 32 numbers of 16 bits in registers, for merging (merge_wave.hpp) ----

struct LaneMasks {
  alignas(32) uint16_t from[34][32];  // row i: all lanes at or after i
  alignas(32) uint16_t only[34][32];  // row i + 1: lane i alone; rows 0 and 33: no lane
};
constexpr LaneMasks make_lane_masks() {
  LaneMasks masks{};
  for (unsigned row = 0; row < 34; ++row) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      masks.from[row][lane] = lane >= row ? 0xFFFF : 0;
      masks.only[row][lane] = lane + 1 == row ? 0xFFFF : 0;
    }
  }
  return masks;
}
constexpr LaneMasks kLaneMasks = make_lane_masks();

PENSTOK_INLINE __m256i ones() {
  return _mm256_set1_epi16(-1);
}
PENSTOK_INLINE __m256i row256(const uint16_t* row) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(row));
}
// Takes b in the lanes of a row of kLaneMasks, a in the others.
PENSTOK_INLINE __m256i blend(__m256i a, __m256i b, const uint16_t* row) {
  __m256i mask = row256(row);
  asm("" : "+x"(mask));  // GCC 12 would compare a mask in memory with 0 first
  return _mm256_blendv_epi8(a, b, mask);
}
// Every lane takes the value of the one after it, the last one takes the first of `next`.
PENSTOK_INLINE __m256i shift_lanes(__m256i v, __m256i next) {
  return _mm256_alignr_epi8(_mm256_permute2x128_si256(v, next, 0x21), v, 2);
}

struct Lanes16 {
  static constexpr unsigned kLanes = 16;
  __m256i v;

  PENSTOK_INLINE static Lanes16 load(const uint16_t* from) { return {load256(from)}; }
  PENSTOK_INLINE void store(uint16_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
  }
  PENSTOK_INLINE Lowest lowest() const {
    const __m128i smaller =
        _mm_min_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i first = _mm_minpos_epu16(smaller);
    const __m256i wanted = _mm256_broadcastw_epi16(first);
    // Lanes of 0xFFFF are unused: values equal to all ones are never found.
    const __m256i equal =
        _mm256_andnot_si256(_mm256_cmpeq_epi16(v, ones()), _mm256_cmpeq_epi16(v, wanted));
    const auto mask = static_cast<uint32_t>(_mm256_movemask_epi8(equal));
    return {static_cast<uint16_t>(_mm_cvtsi128_si32(first)), _tzcnt_u32(mask) / 2};
  }
  PENSTOK_INLINE unsigned count() const {  // lanes that are not 0xFFFF
    const auto unused = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(v, ones())));
    return 16 - count_bits(unused) / 2;
  }
  PENSTOK_INLINE void set(unsigned lane, unsigned value) { set_row(lane + 1, value); }
  PENSTOK_INLINE void set_before(unsigned lane, unsigned value) { set_row(lane, value); }
  PENSTOK_INLINE void drop(unsigned lane) {
    v = blend(v, shift_lanes(v, ones()), kLaneMasks.from[lane]);
  }

 private:
  PENSTOK_INLINE void set_row(unsigned row, unsigned value) {
    v = blend(v, _mm256_set1_epi16(static_cast<short>(value)), kLaneMasks.only[row]);
  }
};

struct Lanes32 {
  static constexpr unsigned kLanes = 32;
  __m256i low, high;

  PENSTOK_INLINE static Lanes32 load(const uint16_t* from) {
    return {load256(from), load256(from + 16)};
  }
  PENSTOK_INLINE void store(uint16_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16), high);
  }
  PENSTOK_INLINE Lowest lowest() const {
    const __m256i both = _mm256_min_epu16(low, high);
    const __m128i first = _mm_minpos_epu16(
        _mm_min_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
    const __m256i wanted = _mm256_broadcastw_epi16(first);
    const auto equal = [&](__m256i v) {
      return static_cast<uint32_t>(_mm256_movemask_epi8(
          _mm256_andnot_si256(_mm256_cmpeq_epi16(v, ones()), _mm256_cmpeq_epi16(v, wanted))));
    };
    const uint64_t mask = equal(low) | uint64_t{equal(high)} << 32;
    return {static_cast<uint16_t>(_mm_cvtsi128_si32(first)),
            static_cast<unsigned>(_tzcnt_u64(mask)) / 2};
  }
  PENSTOK_INLINE unsigned count() const { return Lanes16{low}.count() + Lanes16{high}.count(); }
  PENSTOK_INLINE void set(unsigned lane, unsigned value) { set_row(lane + 1, value); }
  PENSTOK_INLINE void set_before(unsigned lane, unsigned value) { set_row(lane, value); }
  PENSTOK_INLINE void drop(unsigned lane) {
    low = blend(low, shift_lanes(low, high), kLaneMasks.from[lane]);
    high = blend(high, shift_lanes(high, ones()), kLaneMasks.from[lane] + 16);
  }

 private:
  PENSTOK_INLINE void set_row(unsigned row, unsigned value) {
    const __m256i all = _mm256_set1_epi16(static_cast<short>(value));
    low = blend(low, all, kLaneMasks.only[row]);
    high = blend(high, all, kLaneMasks.only[row] + 16);
  }
};

// Ids of the bytes of a piece, and ranks of its pairs of neighbours: lane i of `ranks` belongs to
// bytes i and i + 1. Reads as many bytes as there are lanes and one more.
PENSTOK_INLINE void load_lanes(const BytePair<uint16_t>* pairs, const uint8_t* p, unsigned length,
                               Lanes16& ids, Lanes16& ranks) {
  BytePairLanes lanes(pairs, p);
  lanes.end_after(length);
  ids.v = lanes.id;
  ranks.v = lanes.rank;
}

PENSTOK_INLINE void load_lanes(const BytePair<uint16_t>* pairs, const uint8_t* p, unsigned length,
                               Lanes32& ids, Lanes32& ranks) {
  BytePairLanes low(pairs, p), high(pairs, p + 16);
  low.end_after(length);
  high.end_after(length > 16 ? length - 16 : 0);
  ids = {low.id, high.id};
  ranks = {low.rank, high.rank};
}

}  // namespace penstok::kernel::PENSTOK_ISA

#include "simd/hot_pieces_avx2.hpp"
#include "simd/latin_divider_avx2.hpp"
#include "simd/classify_half_bytes.hpp"
#include "simd/wide_lanes.hpp"
