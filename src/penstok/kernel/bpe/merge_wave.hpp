// Merges many pieces with 16-bit ids in rounds, in registers.
//
// First the sure merges of all pieces are made (sure_merges.hpp) and the ranks around them looked
// up. Then every round makes one merge in every piece that has any left. It prefetches the ranks of
// the two new pairs, which are read in the next round; meanwhile the other pieces have their turn.
// No branch depends on when a piece is finished: a wrong prediction would throw away the work on
// the next five. Replacing each finished piece at once by another was 4 % slower on web text.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

#if PENSTOK_HAS_LANES

namespace penstok::kernel::PENSTOK_ISA {

// For pieces of up to Lanes::kLanes bytes.
template <class Lanes>
class MergeWave {
 public:
  PENSTOK_INLINE explicit MergeWave(const MergeTables<uint16_t>& tables) : pairs_(tables.pairs) {}

  // `tags` are the caller's numbers of the pieces: load(tag, ids, ranks) stores the lanes of one and
  // returns its sure merges (load_with_sure_merges), done(tag, ids, count) takes what it was merged
  // to.
  template <class Load, class Done>
  PENSTOK_INLINE void merge(const uint32_t* tags, size_t count, Load load, Done done) {
    for (size_t from = 0; from < count; from += kMost) {
      const size_t left = count - from;
      const auto size = static_cast<unsigned>(left < kMost ? left : kMost);
      start(tags + from, size, load);
      merge_rest(size);
      for (unsigned i = 0; i < size; ++i) pieces_[i].finish(done);
    }
  }

 private:
  static constexpr unsigned kMost = 64;  // pieces that are merged together
  static constexpr unsigned kLanes = Lanes::kLanes;
  // A row: "none", the ids, "none", the ranks, "none", so that every lane has neighbours.
  static constexpr unsigned kIds = 8;
  static constexpr unsigned kRanks = kIds + kLanes + kOnesAfter;
  static constexpr unsigned kRow = (kRanks + kLanes + kOnesAfter + 31) / 32 * 32;  // lines of cache

  struct Piece {
    PairTable16::Probe left, right;  // of the last merge's pairs with its neighbours
    unsigned lane;                   // of the last merge
    uint32_t tag;
    uint16_t* row;

    PENSTOK_INLINE uint16_t* ids() const { return row + kIds; }
    PENSTOK_INLINE uint16_t* ranks() const { return row + kRanks; }

    // The first merge after the sure ones; false if there is none.
    PENSTOK_INLINE bool merge_first(const PairTable16& pairs) {
      return merge_lowest(pairs, Lanes::load(ranks()));
    }

    // The next merge; false if there is none.
    PENSTOK_INLINE bool merge_next(const PairTable16& pairs) {
      Lanes rank = Lanes::load(ranks());
      rank.set(lane, pairs.read(right));
      rank.set_before(lane, pairs.read(left));
      return merge_lowest(pairs, rank);
    }

    // If there is nothing to merge, the lane is the one after the last: nothing changes.
    PENSTOK_INLINE bool merge_lowest(const PairTable16& pairs, Lanes rank) {
      const auto lowest = rank.lowest();
      lane = lowest.lane;
      // The neighbours are read before the ids are stored: a load right after would have to wait.
      left = pairs.prefetch((ids() + lane)[-1], lowest.value);
      right = pairs.prefetch(lowest.value, ids()[lane + 2]);
      Lanes id = Lanes::load(ids());
      id.set(lane, lowest.value);
      id.drop(lane + 1);
      id.store(ids());
      rank.drop(lane);
      rank.store(ranks());
      return lowest.value != 0xFFFF;
    }

    template <class Done>
    PENSTOK_INLINE void finish(Done done) const {
      done(tag, ids(), Lanes::load(ids()).count());
    }
  };

  // The pairs of a sure merge with its neighbours.
  struct NewPairs {
    PairTable16::Probe left, right;
  };

  // Makes the sure merges of some pieces and looks up the ranks that they change.
  template <class Load>
  PENSTOK_INLINE void start(const uint32_t* tags, unsigned size, Load load) {
    unsigned num_merges = 0;
    for (unsigned i = 0; i < size; ++i) {
      Piece& piece = pieces_[i];
      piece.tag = tags[i];
      piece.row = rows_ + i * kRow;
      piece.ids()[-1] = 0xFFFF;
      const uint32_t merged = load(piece.tag, piece.ids(), piece.ranks());
      add_merges(merged, i * kRow + kIds, num_merges);
    }
    for (unsigned i = 0; i < num_merges; ++i) {
      const uint16_t* at = rows_ + merges_[i];
      new_pairs_[i] = {pairs_.prefetch(at[-1], at[0]), pairs_.prefetch(at[0], at[1])};
    }
    for (unsigned i = 0; i < num_merges; ++i) {
      uint16_t* at = rows_ + merges_[i] + (kRanks - kIds);
      at[-1] = pairs_.read(new_pairs_[i].left);
      at[0] = pairs_.read(new_pairs_[i].right);
    }
  }

  // Lists where merged ids are: each merge before one has moved it by a lane. Four at a time,
  // because their number is unpredictable.
  PENSTOK_INLINE void add_merges(uint32_t merged, unsigned first_lane, unsigned& num_merges) {
    const unsigned count = count_bits(merged);
    for (unsigned i = 0; i < count; i += 4) {
      for (unsigned j = i; j < i + 4; ++j) {
        merges_[num_merges + j] = first_lane + lowest_bit(merged | uint64_t{1} << 32) - j;
        merged &= merged - 1;
      }
    }
    num_merges += count;
  }

  PENSTOK_INLINE void merge_rest(unsigned size) {
    Piece* active[kMost];
    unsigned num_active = 0;
    for (unsigned i = 0; i < size; ++i) {
      active[num_active] = &pieces_[i];
      num_active += pieces_[i].merge_first(pairs_);
    }
    while (num_active > 0) {
      unsigned num_left = 0;
      for (unsigned i = 0; i < num_active; ++i) {
        Piece* const piece = active[i];
        const bool goes_on = piece->merge_next(pairs_);
        active[num_left] = piece;
        num_left += goes_on;
      }
      num_active = num_left;
    }
  }

  const PairTable16& pairs_;
  Piece pieces_[kMost];
  alignas(64) uint16_t rows_[kMost * kRow];
  uint32_t merges_[kMost * kLanes / 2 + 4];  // in rows_
  NewPairs new_pairs_[kMost * kLanes / 2];
};

}  // namespace penstok::kernel::PENSTOK_ISA

#endif
