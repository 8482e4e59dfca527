// Merges many pieces with 16-bit ids, eight of them in turns, in registers.
//
// A turn is one merge of one piece. It prefetches the ranks of the two new pairs, which are read in
// the piece's next turn; meanwhile the others have theirs. A finished piece is replaced at once, so
// that short pieces do not wait for long ones.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// For pieces of up to Lanes::kLanes bytes.
template <class Lanes>
class MergeRing {
 public:
  PENSTOK_INLINE explicit MergeRing(const MergeTables<uint16_t>& tables) : tables_(tables) {}

  // `tags` are the caller's numbers of the pieces: load(tag, ids, ranks) loads the lanes of one,
  // done(tag, ids, count) takes what it was merged to. Pieces are not finished in their order.
  template <class Load, class Done>
  PENSTOK_INLINE void merge(const uint32_t* tags, size_t count, Load load, Done done) {
    const uint32_t* const end = tags + count;
    Piece* active[kPieces];
    unsigned num_active = 0;
    const auto start_next = [&](Piece& piece) __attribute__((always_inline)) {
      while (tags != end) {
        if (PENSTOK_LIKELY(piece.start(tables_.pairs, *tags++, load))) return true;
        piece.finish(done);
      }
      return false;
    };
    for (Piece& piece : pieces_) {
      active[num_active] = &piece;
      num_active += start_next(piece);
    }
    while (num_active > 0) {
      for (unsigned i = 0; i < num_active; ++i) {
        Piece& piece = *active[i];
        if (PENSTOK_LIKELY(piece.take_turn(tables_.pairs))) continue;
        piece.finish(done);
        if (!start_next(piece)) active[i--] = active[--num_active];
      }
    }
  }

 private:
  static constexpr unsigned kPieces = 8;  // 4, 6 and 12 are slower
  static constexpr unsigned kLanes = Lanes::kLanes;
  static constexpr unsigned kMargin = 32;  // keeps `ids` aligned

  struct alignas(64) Piece {
    // "None" before and after the ids, so that every lane has neighbours.
    uint16_t row[kMargin + kLanes + kMargin];
    alignas(64) uint16_t ranks[kLanes];
    PairTable16::Probe left, right;  // of the last merge's pairs with its neighbours
    unsigned lane;                   // of the last merge
    uint32_t tag;

    PENSTOK_INLINE Piece() { row[kMargin - 1] = row[kMargin + kLanes] = 0xFFFF; }

    PENSTOK_INLINE uint16_t* ids() { return row + kMargin; }

    // The first merge; false if there is none.
    template <class Load>
    PENSTOK_INLINE bool start(const PairTable16& pairs, uint32_t number, Load load) {
      tag = number;
      Lanes id, rank;
      load(number, id, rank);
      id.store(ids());
      return merge_lowest(pairs, rank);
    }

    // The next merge; false if there is none.
    PENSTOK_INLINE bool take_turn(const PairTable16& pairs) {
      Lanes rank = Lanes::load(ranks);
      rank.set(lane, pairs.read(right));
      rank.set_before(lane, pairs.read(left));
      return merge_lowest(pairs, rank);
    }

    PENSTOK_INLINE bool merge_lowest(const PairTable16& pairs, Lanes rank) {
      const auto lowest = rank.lowest();
      if (lowest.value == 0xFFFF) return false;
      lane = lowest.lane;
      // The neighbours are read before the ids are stored: a load right after would have to wait.
      left = pairs.prefetch((ids() + lane)[-1], lowest.value);
      right = pairs.prefetch(lowest.value, ids()[lane + 2]);
      Lanes id = Lanes::load(ids());
      id.set(lane, lowest.value);
      id.drop(lane + 1);
      id.store(ids());
      rank.drop(lane);
      rank.store(ranks);
      return true;
    }

    template <class Done>
    PENSTOK_INLINE void finish(Done done) {
      done(tag, ids(), Lanes::load(ids()).count());
    }
  };

  const MergeTables<uint16_t>& tables_;
  Piece pieces_[kPieces];
};

}  // namespace penstok::kernel::PENSTOK_ISA
