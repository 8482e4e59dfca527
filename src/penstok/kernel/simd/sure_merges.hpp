// Loads a piece with 16-bit ids for merging, with its sure merges done. For AVX2 and AVX-512.
//
// A merge is sure if its rank is lower than that of every merge across the borders on both sides,
// whatever the neighbours will have become (BytePair::lowest_across). Until it is made nothing else
// can touch its two parts, because the lowest rank comes first; so it will be made, and may as well
// be made now. Sure merges are never adjacent. Of the six merges of a new English word three are
// sure from the start, and these are cheaper all at once than in turns.
#pragma once

#include <immintrin.h>

#include "bpe/state.hpp"
#include "bytes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Row b: moves the 16-bit lanes that are not in b to the front.
struct KeptLanes {
  alignas(16) uint8_t rows[256][16];
};
constexpr KeptLanes make_kept_lanes() {
  KeptLanes kept{};
  for (unsigned dropped = 0; dropped < 256; ++dropped) {
    unsigned to = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      if (dropped >> lane & 1) continue;
      kept.rows[dropped][to++] = static_cast<uint8_t>(2 * lane);
      kept.rows[dropped][to++] = static_cast<uint8_t>(2 * lane + 1);
    }
  }
  return kept;
}
constexpr KeptLanes kKeptLanes = make_kept_lanes();

// Row n: ones in the lanes from n on.
struct LanesFrom {
  alignas(32) uint16_t rows[17][16];
};
constexpr LanesFrom make_lanes_from() {
  LanesFrom from{};
  for (unsigned row = 0; row <= 16; ++row) {
    for (unsigned lane = row; lane < 16; ++lane) from.rows[row][lane] = 0xFFFF;
  }
  return from;
}
constexpr LanesFrom kLanesFrom = make_lanes_from();

// Where the entry of two bytes of text is. Single loads, because the gather instruction is 2 %
// slower on web text (Zen 3).
PENSTOK_INLINE const double* load_pair(const BytePair<uint16_t>* pairs, const uint8_t* p) {
  uint16_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return reinterpret_cast<const double*>(&pairs[bytes]);
}

// The pairs of neighbours of 16 bytes and the one after them: BytePair, one register per member.
struct BytePairLanes {
  __m256i rank, id, across;

  PENSTOK_INLINE BytePairLanes(const BytePair<uint16_t>* pairs, const uint8_t* p) {
    const auto pair = [&](unsigned i) { return load_pair(pairs, p + i); };
    const auto four = [&](unsigned i) {  // pairs i, i + 1, i + 8, i + 9
      const __m128d low = _mm_loadh_pd(_mm_load_sd(pair(i)), pair(i + 1));
      const __m128d high = _mm_loadh_pd(_mm_load_sd(pair(i + 8)), pair(i + 9));
      return _mm256_castpd_si256(_mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1));
    };
    const __m256i a = four(0), b = four(2), c = four(4), d = four(6);
    const __m256i even = _mm256_unpacklo_epi16(a, b), odd = _mm256_unpackhi_epi16(a, b);
    const __m256i even2 = _mm256_unpacklo_epi16(c, d), odd2 = _mm256_unpackhi_epi16(c, d);
    const __m256i first = _mm256_unpacklo_epi16(even, odd);
    const __m256i second = _mm256_unpacklo_epi16(even2, odd2);
    rank = _mm256_unpacklo_epi64(first, second);
    id = _mm256_unpackhi_epi64(first, second);
    across = _mm256_unpacklo_epi64(_mm256_unpackhi_epi16(even, odd),
                                   _mm256_unpackhi_epi16(even2, odd2));
  }

  // What is after the end of a piece, of which `length` bytes begin at lane 0, becomes ones.
  PENSTOK_INLINE void end_after(unsigned length) {
    const auto from = [](unsigned lane) {
      const uint16_t* row = kLanesFrom.rows[lane < 16 ? lane : 16];
      return _mm256_load_si256(reinterpret_cast<const __m256i*>(row));
    };
    const __m256i no_pair = from(length == 0 ? 0 : length - 1);
    rank = _mm256_or_si256(rank, no_pair);
    across = _mm256_or_si256(across, no_pair);
    id = _mm256_or_si256(id, from(length));
  }

  // Which merges are sure, as a mask of lanes; `before` and `after` are `across` of the 16 lanes
  // before and after these.
  PENSTOK_INLINE __m256i sure(__m256i before, __m256i after) const {
    const __m256i left =
        _mm256_alignr_epi8(across, _mm256_permute2x128_si256(before, across, 0x21), 14);
    const __m256i right =
        _mm256_alignr_epi8(_mm256_permute2x128_si256(across, after, 0x21), across, 2);
    const __m256i lowest = _mm256_min_epu16(left, right);
    const __m256i not_below = _mm256_cmpeq_epi16(_mm256_max_epu16(rank, lowest), rank);
    return _mm256_andnot_si256(not_below, _mm256_set1_epi16(-1));
  }
};

// The same for 8 bytes and the one after them.
struct ShortPairLanes {
  __m128i rank, id, across;

  PENSTOK_INLINE ShortPairLanes(const BytePair<uint16_t>* pairs, const uint8_t* p) {
    const auto two = [&](unsigned i) {
      return _mm_castpd_si128(
          _mm_loadh_pd(_mm_load_sd(load_pair(pairs, p + i)), load_pair(pairs, p + i + 1)));
    };
    const __m128i a = two(0), b = two(2), c = two(4), d = two(6);
    const __m128i even = _mm_unpacklo_epi16(a, b), odd = _mm_unpackhi_epi16(a, b);
    const __m128i even2 = _mm_unpacklo_epi16(c, d), odd2 = _mm_unpackhi_epi16(c, d);
    const __m128i first = _mm_unpacklo_epi16(even, odd);
    const __m128i second = _mm_unpacklo_epi16(even2, odd2);
    rank = _mm_unpacklo_epi64(first, second);
    id = _mm_unpackhi_epi64(first, second);
    across =
        _mm_unpacklo_epi64(_mm_unpackhi_epi16(even, odd), _mm_unpackhi_epi16(even2, odd2));
  }

  PENSTOK_INLINE void end_after(unsigned length) {  // 1 to 8
    const auto from = [](unsigned lane) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(kLanesFrom.rows[8] + 8 - lane));
    };
    const __m128i no_pair = from(length - 1);
    rank = _mm_or_si128(rank, no_pair);
    across = _mm_or_si128(across, no_pair);
    id = _mm_or_si128(id, from(length));
  }

  PENSTOK_INLINE __m128i sure() const {
    const __m128i ones = _mm_set1_epi16(-1);
    const __m128i lowest =
        _mm_min_epu16(_mm_alignr_epi8(across, ones, 14), _mm_alignr_epi8(ones, across, 2));
    return _mm_xor_si128(_mm_cmpeq_epi16(_mm_max_epu16(rank, lowest), rank), ones);
  }
};

// One bit per lane.
PENSTOK_INLINE uint32_t lane_bits(__m256i low, __m256i high) {
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8);
  return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}

// Stores the lanes that are not dropped; returns the position after the last.
PENSTOK_INLINE uint16_t* store_kept(uint16_t* to, __m128i v, uint32_t dropped) {
  const auto* row = reinterpret_cast<const __m128i*>(kKeptLanes.rows[dropped & 0xFF]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(v, _mm_load_si128(row)));
  return to + 8 - count_bits(dropped & 0xFF);
}
PENSTOK_INLINE uint16_t* store_kept(uint16_t* to, __m256i v, uint32_t dropped) {
  to = store_kept(to, _mm256_castsi256_si128(v), dropped);
  return store_kept(to, _mm256_extracti128_si256(v, 1), dropped >> 8);
}

constexpr unsigned kOnesAfter = 16;  // lanes
PENSTOK_INLINE void store_ones(uint16_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_set1_epi16(-1));
}

// Stores the ids of a piece of up to kLanes bytes and the ranks of its pairs, except those that the
// sure merges change, and up to kOnesAfter lanes of ones after each. Returns which lanes are merged,
// as they were numbered before.
template <unsigned kLanes>
PENSTOK_INLINE uint32_t load_with_sure_merges(const BytePair<uint16_t>* pairs, const uint8_t* p,
                                              unsigned length, uint16_t* ids, uint16_t* ranks) {
  if constexpr (kLanes == 8) {
    ShortPairLanes lanes(pairs, p);
    lanes.end_after(length);
    const __m128i sure = lanes.sure();
    const auto merged =
        static_cast<uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(sure, _mm_setzero_si128())));
    store_ones(store_kept(ids, _mm_blendv_epi8(lanes.id, lanes.rank, sure), merged << 1));
    store_ones(store_kept(ranks, lanes.rank, merged));
    return merged;
  }
  const __m256i ones = _mm256_set1_epi16(-1);
  BytePairLanes low(pairs, p);
  if constexpr (kLanes == 16) {
    low.end_after(length);
    const __m256i sure = low.sure(ones, ones);
    const uint32_t merged = lane_bits(sure, _mm256_setzero_si256());
    store_ones(store_kept(ids, _mm256_blendv_epi8(low.id, low.rank, sure), merged << 1));
    store_ones(store_kept(ranks, low.rank, merged));
    return merged;
  } else {
    BytePairLanes high(pairs, p + 16);
    low.end_after(length);
    high.end_after(length > 16 ? length - 16 : 0);
    const __m256i sure_low = low.sure(ones, high.across), sure_high = high.sure(low.across, ones);
    const uint32_t merged = lane_bits(sure_low, sure_high), dropped = merged << 1;
    uint16_t* end = store_kept(ids, _mm256_blendv_epi8(low.id, low.rank, sure_low), dropped);
    const __m256i id = _mm256_blendv_epi8(high.id, high.rank, sure_high);
    store_ones(store_kept(end, id, dropped >> 16));
    end = store_kept(ranks, low.rank, merged);
    store_ones(store_kept(end, high.rank, merged >> 16));
    return merged;
  }
}

struct Lowest {
  unsigned value;  // 0xFFFF if no lane has a rank
  unsigned lane;   // the first that has it
};

PENSTOK_INLINE __m256i load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// The lowest of 8, 16 or 32 ranks.
template <unsigned kRanks>
PENSTOK_INLINE Lowest lowest_rank(const uint16_t* ranks) {
  if constexpr (kRanks == 8) {
    const __m128i first =
        _mm_minpos_epu16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(ranks)));
    const auto found = static_cast<uint32_t>(_mm_cvtsi128_si32(first));
    return {found & 0xFFFF, found >> 16};
  } else {
    const __m256i low = load256(ranks);
    const __m256i high = kRanks == 32 ? load256(ranks + 16) : low;
    const __m256i both = _mm256_min_epu16(low, high);
    const __m128i first = _mm_minpos_epu16(
        _mm_min_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
    const __m256i wanted = _mm256_broadcastw_epi16(first);
    const auto equal = [&](__m256i v) {
      return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(v, wanted)));
    };
    const uint64_t mask = kRanks == 32 ? equal(low) | uint64_t{equal(high)} << 32 : equal(low);
    return {static_cast<uint16_t>(_mm_cvtsi128_si32(first)), lowest_bit(mask) / 2};
  }
}

}  // namespace penstok::kernel::PENSTOK_ISA
