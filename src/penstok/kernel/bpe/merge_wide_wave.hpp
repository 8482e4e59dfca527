// Merges many pieces with 32-bit ids in rounds.
//
// As in merge_wave.hpp every round makes one merge in every piece that has any left. Lanes never
// move: a merge removes one, and a mask tells which remain. The first lane and the one after the
// last hold an id that is part of no merge, so that every merge has two neighbours and needs no
// branch.
//
// A round is three passes over the pieces: find the lowest keys, which drops the pieces that are
// finished; merge, and prefetch the ranks of the new pairs; read them. So no pass waits for memory,
// and keys are stored one by one long before they are loaded as a vector.
#pragma once

#include "bpe/initial_ids.hpp"
#include "bpe/merge_plain.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

#if PENSTOK_HAS_LANES

namespace penstok::kernel::PENSTOK_ISA {

// For pieces of up to kLanes bytes or initial ids, 16 or 32; or with 64 for kMaxInitialIds.
template <unsigned kLanes>
class WideMergeWave {
 public:
  PENSTOK_INLINE bool is_full() const { return size_ == kMost; }

  // Adds a piece; a full wave must be merged before the next one. `tag` is the caller's.
  PENSTOK_INLINE void add(const MergeTables<uint32_t>& tables, const uint8_t* p, size_t length,
                          uint32_t tag) {
    Piece& piece = pieces_[size_];
    for (unsigned from = 0; from < (kLanes == 16 ? 16 : length); from += 8) {
      for (unsigned i = from; i < from + 8; ++i) {
        const BytePair<uint32_t>& pair = tables.byte_pair(p[i], p[i + 1]);
        piece.ids[1 + i] = pair.left_id;
        piece.first_key()[i] = make_merge_key(pair.rank, 1 + i);
      }
    }
    clear_keys<kLanes>(piece.first_key(), static_cast<unsigned>(length) - 1);
    add_ends(tables, static_cast<unsigned>(length), tag);
  }

  // The same with the first `count` of some initial ids. Reads kMostIds ids.
  PENSTOK_INLINE void add(const MergeTables<uint32_t>& tables, const InitialIds<uint32_t>& initial,
                          unsigned count, uint32_t tag) {
    Piece& piece = pieces_[size_];
    std::memcpy(piece.ids + 1, initial.ids, kMostIds * sizeof(uint32_t));
    clear_keys<kLanes>(piece.first_key(), 0);
    const uint64_t joints = initial.joints & bits_below(count - 1);
    for (uint64_t rest = joints; rest != 0; rest &= rest - 1) {
      const unsigned i = lowest_bit(rest);
      const auto probe = tables.pairs.prefetch(initial.ids[i], initial.ids[i + 1]);
      piece.first_key()[i] = static_cast<uint32_t>(probe.slot);
    }
    joints_[num_joints_++] = {&piece, joints};
    add_ends(tables, count, tag);
  }

  // Merges all pieces and empties the wave; done(tag, ids, count, starts) takes what each was
  // merged to, and where these tokens begin and the last one ends, in bytes or initial ids.
  template <class Done>
  PENSTOK_INLINE void merge(const MergeTables<uint32_t>& tables, Done done) {
    for (unsigned i = 0; i < num_joints_; ++i) joints_[i].read_ranks(tables);
    merge_rounds(tables);
    for (unsigned i = 0; i < size_; ++i) {
      uint32_t ids[64];
      const unsigned count = pieces_[i].copy_ids(ids);
      done(tags_[i], ids, count, pieces_[i].lanes >> 1);
    }
    size_ = num_joints_ = 0;
  }

 private:
  static constexpr unsigned kMost = kLanes == 64 ? 32 : 64;  // pieces that are merged together
  static constexpr unsigned kMostIds = kLanes == 64 ? kMaxInitialIds : kLanes;
  static_assert(kMostIds + 2 <= 64, "two more lanes, for the ends, in a mask");

  struct alignas(32) Piece {
    uint32_t keys[8 + kLanes];  // the key of lane i, the pair of i and the lane after it: 7 + i
    uint32_t ids[kMostIds + 2];
    uint64_t lanes;  // those that remain, one bit each

    PENSTOK_INLINE uint32_t* first_key() { return keys + 8; }
    PENSTOK_INLINE uint32_t& key(unsigned lane) { return keys[7 + lane]; }

    PENSTOK_INLINE unsigned copy_ids(uint32_t* to) const {
      unsigned count = 0;
      uint64_t rest = lanes & (lanes - 1);  // without the first lane
      for (; (rest & (rest - 1)) != 0; rest &= rest - 1) to[count++] = ids[lowest_bit(rest)];
      return count;
    }
  };

  // The pairs of initial ids of a piece. Their ranks were prefetched; instead of keys there are the
  // slots of the table that have them.
  struct Joints {
    Piece* piece;
    uint64_t mask;

    PENSTOK_INLINE void read_ranks(const MergeTables<uint32_t>& tables) const {
      for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        const unsigned lane = 1 + lowest_bit(rest);
        uint32_t& key = piece->key(lane);
        const uint32_t left = piece->ids[lane], right = piece->ids[lane + 1];
        key = make_merge_key(tables.pairs.read_slot(left, right, key), lane);
      }
    }
  };

  // A merge whose new pairs were prefetched.
  struct Step {
    Piece* piece;
    uint32_t key;
    unsigned previous;
    PairTable32::Probe left, right;
  };

  PENSTOK_INLINE void add_ends(const MergeTables<uint32_t>& tables, unsigned count, uint32_t tag) {
    Piece& piece = pieces_[size_];
    piece.ids[0] = piece.ids[1 + count] = tables.never_merged;
    piece.lanes = bits_below(count + 2);
    tags_[size_++] = tag;
  }

  PENSTOK_INLINE void merge_rounds(const MergeTables<uint32_t>& tables) {
    Step steps[kMost];
    for (unsigned i = 0; i < size_; ++i) steps[i].piece = &pieces_[i];
    for (unsigned num_active = size_;;) {
      unsigned num_left = 0;
      for (unsigned i = 0; i < num_active; ++i) {
        Piece* const piece = steps[i].piece;
        const uint32_t key = lowest_key<kLanes>(piece->first_key());
        steps[num_left].piece = piece;
        steps[num_left].key = key;
        num_left += key < kNoKey;
      }
      num_active = num_left;
      if (num_active == 0) return;
      for (unsigned i = 0; i < num_active; ++i) merge_lowest(tables, steps[i]);
      for (unsigned i = 0; i < num_active; ++i) set_new_keys(tables, steps[i]);
    }
  }

  PENSTOK_INLINE static void merge_lowest(const MergeTables<uint32_t>& tables, Step& step) {
    Piece& piece = *step.piece;
    const unsigned lane = step.key & kLaneMask;
    const uint32_t merged = step.key >> kLaneBits;
    const uint64_t after = piece.lanes & (~uint64_t{1} << lane);
    const uint64_t after_next = after & (after - 1);
    const auto removed = static_cast<unsigned>(_tzcnt_u64(after));
    const auto next = static_cast<unsigned>(_tzcnt_u64(after_next));
    step.previous = 63 - static_cast<unsigned>(_lzcnt_u64(piece.lanes & bits_below(lane)));
    piece.lanes ^= after ^ after_next;
    piece.ids[lane] = merged;
    piece.key(removed) = kNoKey;
    step.left = tables.pairs.prefetch(piece.ids[step.previous], merged);
    step.right = tables.pairs.prefetch(merged, piece.ids[next]);
  }

  PENSTOK_INLINE static void set_new_keys(const MergeTables<uint32_t>& tables, const Step& step) {
    const unsigned lane = step.key & kLaneMask;
    step.piece->key(lane) = make_merge_key(tables.pairs.read(step.right), lane);
    step.piece->key(step.previous) = make_merge_key(tables.pairs.read(step.left), step.previous);
  }

  unsigned size_ = 0;
  unsigned num_joints_ = 0;
  uint32_t tags_[kMost];
  Piece pieces_[kMost];
  Joints joints_[kMost];
};

}  // namespace penstok::kernel::PENSTOK_ISA

#endif
