// The machine-dependent steps for AVX-512 with VBMI2 (Ice Lake, Zen 4 and later).
#pragma once

#if defined(PENSTOK_MODEL_AVX512)
#include "tests/avx512_model.hpp"
#else
#include <immintrin.h>
#endif

#include "bpe/piece_table.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/byte_masks.hpp"
#include "simd/letter_pages.hpp"
#include "simd/sure_merges.hpp"
#include "simd/x86_steps.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

PENSTOK_INLINE __m512i bytes512(unsigned value) {
  return _mm512_set1_epi8(static_cast<char>(value));
}
PENSTOK_INLINE __m128i load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// 64 bytes, and the masks that comparing them gives.
struct Bytes64 {
  __m512i v;

  PENSTOK_INLINE explicit Bytes64(const uint8_t* p) : v(_mm512_loadu_si512(p)) {}

  PENSTOK_INLINE uint64_t top_bits() const { return _mm512_movepi8_mask(v); }
  template <unsigned kBit>  // the bits of that number, one per byte
  PENSTOK_INLINE uint64_t bits() const {
    return _mm512_test_epi8_mask(v, bytes512(1u << kBit));
  }
  PENSTOK_INLINE uint64_t equal(unsigned value) const {
    return _mm512_cmpeq_epi8_mask(v, bytes512(value));
  }
  PENSTOK_INLINE uint64_t at_least(unsigned value) const {
    return _mm512_cmpge_epu8_mask(v, bytes512(value));
  }
  PENSTOK_INLINE uint64_t at_most(unsigned value) const {
    return _mm512_cmple_epu8_mask(v, bytes512(value));
  }
};

struct AsciiKinds {
  // Bit 0: letter, bit 1: number, bit 2: white space, bit 3: newline, bit 4: stop.
  alignas(64) uint8_t kind[128];
};
constexpr AsciiKinds make_ascii_kinds() {
  AsciiKinds kinds{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    const bool number = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= 9 && c <= 13);
    const bool newline = c == '\n' || c == '\r';
    kinds.kind[c] = static_cast<uint8_t>((letter ? 1 : 0) | (number ? 2 : 0) | (space ? 4 : 0) |
                                         (newline ? 8 : 0) | (is_stop(c) ? 16 : 0));
  }
  return kinds;
}
constexpr AsciiKinds kAsciiKinds = make_ascii_kinds();

// The table of 128 kinds fits two registers: one instruction looks up 64 bytes.
PENSTOK_INLINE __m512i look_up_ascii(const Bytes64& text) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(kAsciiKinds.kind), text.v,
                                  _mm512_load_si512(kAsciiKinds.kind + 64));
}

PENSTOK_INLINE AsciiMasks classify_ascii(const uint8_t* p) {
  const Bytes64 text(p);
  const __m512i kind = look_up_ascii(text);
  const auto of_kind = [&](unsigned bit) { return _mm512_test_epi8_mask(kind, bytes512(bit)); };
  AsciiMasks masks;
  masks.high = text.top_bits();
  masks.letter = of_kind(1) & ~masks.high;
  masks.number = of_kind(2) & ~masks.high;
  masks.space = of_kind(4) & ~masks.high;
  masks.newline = of_kind(8) & ~masks.high;
  masks.blank = text.equal(' ');
  masks.apostrophe = text.equal('\'');
  return masks;
}

PENSTOK_INLINE uint64_t find_ascii_stops(const uint8_t* p) {
  const Bytes64 text(p);
  return _mm512_test_epi8_mask(look_up_ascii(text), bytes512(16)) & ~text.top_bits();
}

PENSTOK_INLINE void find_lead_kinds(const Bytes64& text, HighMasks& masks) {
  const __m512i table = _mm512_loadu_si512(unicode_tables::kLeadKind);
  const __m512i kind = _mm512_permutexvar_epi8(text.v, table);
  const auto of_kind = [&](unsigned bit) {
    return _mm512_mask_test_epi8_mask(masks.lead, kind, bytes512(bit));
  };
  masks.letter2 = of_kind(kLeadLetter2);
  masks.letter3 = of_kind(kLeadLetter3);
  masks.mixed = of_kind(kLeadMixed);
}

PENSTOK_INLINE ThirdMasks look_up_third(const LetterPage& page, const Bytes64& third) {
  const __m512i kind = _mm512_permutexvar_epi8(third.v, _mm512_load_si512(page.whole));
  return {_mm512_test_epi8_mask(kind, bytes512(1)), _mm512_test_epi8_mask(kind, bytes512(2))};
}

struct Counting {
  alignas(64) uint8_t value[64];
};
constexpr Counting make_counting() {
  Counting counting{};
  for (unsigned i = 0; i < 64; ++i) counting.value[i] = static_cast<uint8_t>(i);
  return counting;
}
constexpr Counting kCounting = make_counting();

// Writes base + i for each bit i (and overwrites up to 32 entries), and returns their number. The
// numbers 0 to 63 are compressed by the mask, then widened. English has about 14 pieces in 64 bytes,
// so whether there are more than 16 is unpredictable, and not asked.
PENSTOK_INLINE unsigned store_positions(uint32_t* to, uint64_t mask, uint32_t base) {
  const __m512i indexes = _mm512_maskz_compress_epi8(mask, _mm512_load_si512(kCounting.value));
  const __m512i bases = _mm512_set1_epi32(static_cast<int>(base));
  const auto store = [&](unsigned at, __m128i sixteen) {
    _mm512_storeu_si512(to + at, _mm512_add_epi32(bases, _mm512_cvtepu8_epi32(sixteen)));
  };
  const unsigned count = count_bits(mask);
  store(0, _mm512_castsi512_si128(indexes));
  store(16, _mm512_extracti32x4_epi32(indexes, 1));
  if (PENSTOK_UNLIKELY(count > 32)) {
    store(32, _mm512_extracti32x4_epi32(indexes, 2));
    store(48, _mm512_extracti32x4_epi32(indexes, 3));
  }
  return count;
}

// Which of the two ways of a line holds the key: 0, 1, or 2 for neither.
PENSTOK_INLINE unsigned find_way(const PieceKey* keys, const PieceKey& key) {
  const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(keys));
  const unsigned equal = _mm256_cmpeq_epi64_mask(both, _mm256_broadcastsi128_si256(load128(&key)));
  return kWayOfHalves >> (2 * equal) & 3;
}

// ---- 16 or 32 numbers of 16 bits in registers, for merging (merge_wave.hpp) ----

struct Lanes16 {
  static constexpr unsigned kLanes = 16;
  __m256i v;

  PENSTOK_INLINE static Lanes16 load(const uint16_t* from) {
    return {_mm256_loadu_si256((const __m256i*)from)};
  }
  PENSTOK_INLINE void store(uint16_t* to) const { _mm256_storeu_si256((__m256i*)to, v); }
  PENSTOK_INLINE Lowest lowest() const {
    const __m128i first =
        _mm_minpos_epu16(_mm_min_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
    const __m256i wanted = _mm256_broadcastw_epi16(first);
    // Lanes of 0xFFFF are unused: values equal to it are never found.
    const unsigned equal = _mm256_mask_cmpeq_epi16_mask(
        _mm256_cmpneq_epi16_mask(wanted, _mm256_set1_epi16(-1)), v, wanted);
    return {static_cast<uint16_t>(_mm_cvtsi128_si32(first)), _tzcnt_u32(equal | 1u << kLanes)};
  }
  PENSTOK_INLINE unsigned count() const {  // lanes that are not 0xFFFF
    return count_bits(_mm256_cmpneq_epi16_mask(v, _mm256_set1_epi16(-1)));
  }
  PENSTOK_INLINE void set(unsigned lane, unsigned value) {
    v = _mm256_mask_set1_epi16(v, static_cast<__mmask16>(1u << lane), static_cast<short>(value));
  }
  PENSTOK_INLINE void set_before(unsigned lane, unsigned value) {
    v = _mm256_mask_set1_epi16(v, static_cast<__mmask16>((1u << lane & 0xFFFF) >> 1),
                               static_cast<short>(value));
  }
  PENSTOK_INLINE void drop(unsigned lane) {
    v = _mm256_mask_compress_epi16(_mm256_set1_epi16(-1), static_cast<__mmask16>(~(1u << lane)), v);
  }
};

struct Lanes32 {
  static constexpr unsigned kLanes = 32;
  __m512i v;

  PENSTOK_INLINE static Lanes32 load(const uint16_t* from) { return {_mm512_loadu_si512(from)}; }
  PENSTOK_INLINE void store(uint16_t* to) const { _mm512_storeu_si512(to, v); }
  PENSTOK_INLINE Lowest lowest() const {
    const __m256i half =
        _mm256_min_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    const __m128i first = _mm_minpos_epu16(
        _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    const __m512i wanted = _mm512_broadcastw_epi16(first);
    const uint64_t equal = _mm512_mask_cmpeq_epi16_mask(
        _mm512_cmpneq_epi16_mask(wanted, _mm512_set1_epi16(-1)), v, wanted);
    return {static_cast<uint16_t>(_mm_cvtsi128_si32(first)),
            static_cast<unsigned>(_tzcnt_u64(equal | uint64_t{1} << kLanes))};
  }
  PENSTOK_INLINE unsigned count() const {
    return count_bits(_mm512_cmpneq_epi16_mask(v, _mm512_set1_epi16(-1)));
  }
  PENSTOK_INLINE void set(unsigned lane, unsigned value) {
    v = _mm512_mask_set1_epi16(v, static_cast<__mmask32>(bit(lane)), static_cast<short>(value));
  }
  PENSTOK_INLINE void set_before(unsigned lane, unsigned value) {
    const auto mask = static_cast<__mmask32>(static_cast<__mmask32>(bit(lane)) >> 1);
    v = _mm512_mask_set1_epi16(v, mask, static_cast<short>(value));
  }
  PENSTOK_INLINE void drop(unsigned lane) {
    v = _mm512_mask_compress_epi16(_mm512_set1_epi16(-1), static_cast<__mmask32>(~bit(lane)), v);
  }

 private:
  PENSTOK_INLINE static uint64_t bit(unsigned lane) { return uint64_t{1} << lane; }
};

// Sixteen pairs of neighbouring bytes from p on, as (left id, rank) in 32 bits each.
PENSTOK_INLINE __m512i gather_pairs(const BytePair<uint16_t>* pairs, const uint8_t* p) {
  const __m512i left = _mm512_cvtepu8_epi32(load128(p));
  const __m512i right = _mm512_cvtepu8_epi32(load128(p + 1));
  const __m512i index = _mm512_or_si512(_mm512_slli_epi32(right, 8), left);
  return _mm512_i32gather_epi32(index, pairs, sizeof *pairs);
}
PENSTOK_INLINE __m256i ids_of(__m512i pairs) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16));
}
PENSTOK_INLINE __m256i ranks_of(__m512i pairs) {
  return _mm512_cvtepi32_epi16(pairs);
}

// Ids of the bytes of a piece, and ranks of its pairs of neighbours: lane i of `ranks` belongs to
// bytes i and i + 1. Reads 16 (32) bytes and one more.
PENSTOK_INLINE void load_lanes(const BytePair<uint16_t>* pairs, const uint8_t* p, unsigned length,
                               Lanes16& ids, Lanes16& ranks) {
  const __m512i found = gather_pairs(pairs, p);
  const __m256i none = _mm256_set1_epi16(-1);
  const auto bytes = static_cast<__mmask16>(_bzhi_u32(0xFFFF, length));
  ids.v = _mm256_mask_mov_epi16(none, bytes, ids_of(found));
  ranks.v = _mm256_mask_mov_epi16(none, static_cast<__mmask16>(bytes >> 1), ranks_of(found));
}

PENSTOK_INLINE void load_lanes(const BytePair<uint16_t>* pairs, const uint8_t* p, unsigned length,
                               Lanes32& ids, Lanes32& ranks) {
  const __m512i low = gather_pairs(pairs, p), high = gather_pairs(pairs, p + 16);
  const auto join = [](__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  };
  const __m512i none = _mm512_set1_epi16(-1);
  const auto bytes = static_cast<__mmask32>(_bzhi_u32(~0u, length));
  ids.v = _mm512_mask_mov_epi16(none, bytes, join(ids_of(low), ids_of(high)));
  ranks.v = _mm512_mask_mov_epi16(none, bytes >> 1, join(ranks_of(low), ranks_of(high)));
}

}  // namespace penstok::kernel::PENSTOK_ISA

#include "simd/hot_pieces_avx512.hpp"
#include "simd/latin_divider_avx512.hpp"
#include "simd/classify_high.hpp"
#include "simd/wide_lanes.hpp"
