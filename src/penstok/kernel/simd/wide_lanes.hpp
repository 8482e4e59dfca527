// Merges with 32-bit ids: up to 32 pairs as keys in AVX2 registers. Included by avx2.hpp and
// avx512.hpp.
//
// A key is (rank, lane), so that the lowest key is the leftmost pair of lowest rank. Lanes never
// move: a merge removes one lane, and a mask tells which remain.
#pragma once

namespace penstok::kernel::PENSTOK_ISA {

constexpr unsigned kLaneBits = 6;
constexpr unsigned kNoLane = (1u << kLaneBits) - 1;
constexpr uint32_t kNoKey = ~uint32_t{0} << kLaneBits;  // this and all above: no pair
static_assert(kIdBits + kLaneBits < 32, "a key must stay below kNoKey");

PENSTOK_INLINE uint32_t make_merge_key(uint32_t rank, unsigned lane) {
  return rank << kLaneBits | lane;  // kNoMerge gives a key above kNoKey
}

struct WideLaneMasks {
  alignas(32) uint32_t only[64][8];  // row i + 24: lane i alone, if it is one of eight
};
constexpr WideLaneMasks make_wide_lane_masks() {
  WideLaneMasks masks{};
  for (unsigned lane = 0; lane < 8; ++lane) masks.only[lane + 24][lane] = ~uint32_t{0};
  return masks;
}
constexpr WideLaneMasks kWideLaneMasks = make_wide_lane_masks();

template <unsigned kVectors>
struct MergeKeys {
  static constexpr unsigned kLanes = 8 * kVectors;
  __m256i v[kVectors];

  PENSTOK_INLINE static MergeKeys load(const uint32_t* from) {
    MergeKeys keys;
    for (unsigned i = 0; i < kVectors; ++i) {
      keys.v[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 8 * i));
    }
    return keys;
  }
  PENSTOK_INLINE uint32_t lowest() const {
    __m256i all = _mm256_min_epu32(v[0], v[1]);
    if constexpr (kVectors == 4) all = _mm256_min_epu32(all, _mm256_min_epu32(v[2], v[3]));
    __m128i four =
        _mm_min_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_min_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  }
  PENSTOK_INLINE void set(unsigned lane, uint32_t key) {  // nothing for kNoLane
    const __m256i value = _mm256_set1_epi32(static_cast<int>(key));
    for (unsigned i = 0; i < kVectors; ++i) {
      const uint32_t* row = kWideLaneMasks.only[(lane + 24 - 8 * i) & 63];
      const __m256i mask = _mm256_load_si256(reinterpret_cast<const __m256i*>(row));
      v[i] = _mm256_blendv_epi8(v[i], value, mask);
    }
  }
};

// A piece being merged: the id of each remaining lane.
struct WidePiece {
  uint64_t left;                     // one bit per lane
  uint32_t ids[(1u << kLaneBits) + 1];  // the last two are for "no lane"
};

template <class Keys>
PENSTOK_INLINE Keys load_wide(const MergeTables<uint32_t>& tables, const uint8_t* p,
                              unsigned length, WidePiece& piece) {
  alignas(32) uint32_t keys[Keys::kLanes];
  for (unsigned i = 0; i < Keys::kLanes; ++i) keys[i] = kNoKey;
  for (unsigned i = 0; i + 1 < length; ++i) {
    const BytePair<uint32_t>& pair = tables.byte_pair(p[i], p[i + 1]);
    piece.ids[i] = pair.left_id;
    keys[i] = make_merge_key(pair.rank, i);
  }
  if (length > 0) piece.ids[length - 1] = tables.byte_id(p[length - 1]);
  piece.ids[kNoLane] = piece.ids[kNoLane + 1] = 0;
  piece.left = bits_below(length);
  return Keys::load(keys);
}

// The same from ids instead of bytes; only the pairs of `joints` are looked up.
template <class Keys>
PENSTOK_INLINE Keys load_wide_ids(const MergeTables<uint32_t>& tables, const uint32_t* ids,
                                  unsigned count, uint64_t joints, WidePiece& piece) {
  alignas(32) uint32_t keys[Keys::kLanes];
  for (unsigned i = 0; i < Keys::kLanes; ++i) keys[i] = kNoKey;
  for (; joints != 0; joints &= joints - 1) {
    const unsigned i = lowest_bit(joints);
    keys[i] = make_merge_key(tables.rank_of(ids[i], ids[i + 1]), i);
  }
  std::memcpy(piece.ids, ids, Keys::kLanes * sizeof(uint32_t));
  piece.ids[kNoLane] = piece.ids[kNoLane + 1] = 0;
  piece.left = bits_below(count);
  return Keys::load(keys);
}

// Merges kGroup pieces in lockstep: while one waits for a rank from memory the others proceed, and
// the only branch is "all done".
template <class Keys, unsigned kGroup>
PENSTOK_INLINE void merge_lockstep_wide(const MergeTables<uint32_t>& tables,
                                        WidePiece (&pieces)[kGroup], Keys (&keys)[kGroup]) {
  for (;;) {
    uint32_t lowest[kGroup], smallest = kNoKey;
    for (unsigned g = 0; g < kGroup; ++g) {
      lowest[g] = keys[g].lowest();
      smallest = lowest[g] < smallest ? lowest[g] : smallest;
    }
    if (smallest == kNoKey) return;
    for (unsigned g = 0; g < kGroup; ++g) {
      WidePiece& piece = pieces[g];
      const bool done = lowest[g] >= kNoKey;  // then no lane is changed
      const unsigned lane = done ? kNoLane : lowest[g] & kNoLane;
      const uint32_t merged = lowest[g] >> kLaneBits;
      const uint64_t after = piece.left & (~uint64_t{1} << lane);
      const uint64_t taken = after & -after, after_taken = after ^ taken;
      const uint64_t before = piece.left & bits_below(lane);
      const unsigned next = static_cast<unsigned>(_tzcnt_u64(after_taken));
      const unsigned previous =
          done ? kNoLane : (63 - static_cast<unsigned>(_lzcnt_u64(before))) & kNoLane;
      piece.left ^= taken;
      piece.ids[lane] = merged;
      const uint32_t right_rank = tables.rank_of(merged, piece.ids[next]);
      const uint32_t left_rank = tables.rank_of(piece.ids[previous], merged);
      keys[g].set(static_cast<unsigned>(_tzcnt_u64(taken)) & kNoLane, kNoKey);
      keys[g].set(lane, next > kNoLane ? kNoKey : make_merge_key(right_rank, lane));
      keys[g].set(previous, make_merge_key(left_rank, previous));
    }
  }
}

PENSTOK_INLINE unsigned store_wide(const WidePiece& piece, uint32_t* to) {
  unsigned count = 0;
  for (uint64_t rest = piece.left; rest != 0; rest &= rest - 1) {
    to[count++] = piece.ids[lowest_bit(rest)];
  }
  return count;
}

}  // namespace penstok::kernel::PENSTOK_ISA
