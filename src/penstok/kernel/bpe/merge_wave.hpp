// Merges many pieces with 16-bit ids in rounds.
//
// First the sure merges of all pieces are made (sure_merges.hpp) and the ranks around them looked
// up. Then every round makes one merge in every piece that has any left, in three passes: find the
// lowest ranks, which drops the pieces that are finished; merge, and prefetch the ranks of the new
// pairs; read them. So no pass waits for memory, ranks are stored one by one long before they are
// loaded as a vector, and no branch depends on when a piece is finished: a wrong prediction would
// throw away the work on the next five.
//
// Lanes do not move: a merge removes one, and a mask tells which remain. The lanes before the
// first and after the last hold 0xFFFF, which is part of no merge, so that every merge has two
// neighbours.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

#if PENSTOK_HAS_LANES

namespace penstok::kernel::PENSTOK_ISA {

// The bytes of a piece.
struct PieceText {
  const uint8_t* begin;
  unsigned length;
};

// For pieces of up to 31 bytes.
class MergeWave {
 public:
  PENSTOK_INLINE explicit MergeWave(const MergeTables<uint16_t>& tables)
      : byte_pairs_(tables.byte_pairs), pairs_(tables.pairs) {}

  // `tags` are the caller's numbers of the pieces, the shortest first: text(tag) returns the bytes
  // of one, and done(tag, ids, count) takes what it was merged to.
  template <class Text, class Done>
  PENSTOK_INLINE void merge(const uint32_t* tags, size_t count, Text text, Done done) {
    for (size_t from = 0; from < count; from += kMost) {
      const size_t left = count - from;
      const auto size = static_cast<unsigned>(left < kMost ? left : kMost);
      for (unsigned i = 0; i < size; ++i) {
        pieces_[i].tag = tags[from + i];
        pieces_[i].text = text(tags[from + i]);
      }
      load(size);
      merge_rounds();
      for (unsigned i = 0; i < size; ++i) pieces_[i].finish(done);
    }
  }

 private:
  static constexpr unsigned kMost = 64;  // pieces that are merged together
  static constexpr unsigned kMaxBytes = 32;  // rounded up

  struct alignas(64) Piece {
    PieceText text;
    uint64_t lanes;  // those that remain, one bit each: the one before the first is bit 0
    uint32_t tag;
    uint16_t ids[1 + kMaxBytes + kOnesAfter];    // the lane before the first, then the others
    uint16_t ranks[1 + kMaxBytes + kOnesAfter];  // of a lane and the one after it

    template <class Done>
    PENSTOK_INLINE void finish(Done done) const {
      uint16_t kept[kMaxBytes + kOnesAfter];
      const auto dropped = static_cast<uint32_t>(~(lanes >> 1));
      uint16_t* end = store_kept(kept, load256(ids + 1), dropped);
      if (text.length > 16) store_kept(end, load256(ids + 17), dropped >> 16);
      done(tag, kept, count_bits(lanes) - 2);
    }
  };

  // A merge whose new pairs were prefetched.
  struct Step {
    Piece* piece;
    uint32_t lane, merged, previous;
    PairTable16::Probe left, right;
  };

  // A sure merge, and its pairs with its neighbours.
  struct SureMerge {
    Piece* piece;
    uint32_t lane;
    PairTable16::Probe left, right;
  };

  // Makes the sure merges of all pieces and looks up the ranks that they change.
  PENSTOK_INLINE void load(unsigned size) {
    unsigned num_merges = 0;
    for (unsigned& count : num_listed_) count = 0;
    for (unsigned i = 0; i < size; ++i) {
      Piece& piece = pieces_[i];
      const uint32_t merged = load_piece(piece);
      const unsigned count = piece.text.length - count_bits(merged);
      piece.lanes = bits_below(count + 2);
      const unsigned list = (count > 8 + 1) + (count > 16 + 1);  // n ids have n - 1 ranks
      listed_[list][num_listed_[list]++] = &piece;
      add_merges(merged, piece, num_merges);
    }
    for (unsigned i = 0; i < num_merges; ++i) {
      SureMerge& merge = merges_[i];
      const uint16_t* at = merge.piece->ids + merge.lane;
      merge.left = pairs_.prefetch(at[-1], at[0]);
      merge.right = pairs_.prefetch(at[0], at[1]);
    }
    for (unsigned i = 0; i < num_merges; ++i) {
      const SureMerge& merge = merges_[i];
      uint16_t* at = merge.piece->ranks + merge.lane;
      at[-1] = pairs_.read(merge.left);
      at[0] = pairs_.read(merge.right);
    }
  }

  // Returns which lanes are merged, as they were numbered before.
  PENSTOK_INLINE uint32_t load_piece(Piece& piece) const {
    const auto [p, length] = piece.text;
    uint16_t *const ids = piece.ids + 1, *const ranks = piece.ranks + 1;
    ids[-1] = 0xFFFF;
    // Predictable, because the caller lists the shortest first.
    if (length <= 8) return load_with_sure_merges<8>(byte_pairs_, p, length, ids, ranks);
    if (length <= 16) return load_with_sure_merges<16>(byte_pairs_, p, length, ids, ranks);
    return load_with_sure_merges<32>(byte_pairs_, p, length, ids, ranks);
  }

  // Lists where merged ids are: each merge before one has moved it by a lane. Four at a time,
  // because their number is unpredictable.
  PENSTOK_INLINE void add_merges(uint32_t merged, Piece& piece, unsigned& num_merges) {
    const unsigned count = count_bits(merged);
    for (unsigned i = 0; i < count; i += 4) {
      for (unsigned j = i; j < i + 4; ++j) {
        merges_[num_merges + j].piece = &piece;
        merges_[num_merges + j].lane = 1 + lowest_bit(merged | uint64_t{1} << 32) - j;
        merged &= merged - 1;
      }
    }
    num_merges += count;
  }

  PENSTOK_INLINE void merge_rounds() {
    Step* end = steps_;
    for (unsigned list = 0; list < kLists; ++list) {
      for (unsigned i = 0; i < num_listed_[list]; ++i) (end++)->piece = listed_[list][i];
    }
    Step *after8 = steps_ + num_listed_[0], *after16 = after8 + num_listed_[1];
    for (;;) {
      Step* const left8 = find_lowest<8>(steps_, after8, steps_);
      Step* const left16 = find_lowest<16>(after8, after16, left8);
      end = find_lowest<32>(after16, end, left16);
      after8 = left8;
      after16 = left16;
      if (end == steps_) return;
      for (Step* step = steps_; step != end; ++step) merge_lowest(*step);
      for (Step* step = steps_; step != end; ++step) set_new_ranks(*step);
    }
  }

  // Finds the next merges of the pieces [from, end), which have up to kRanks ranks; moves those that
  // have one to `to` and returns the position after the last.
  template <unsigned kRanks>
  PENSTOK_INLINE Step* find_lowest(const Step* from, const Step* end, Step* to) {
    for (; from != end; ++from) {
      Piece* const piece = from->piece;
      const Lowest lowest = lowest_rank<kRanks>(piece->ranks + 1);
      to->piece = piece;
      to->lane = lowest.lane + 1;
      to->merged = lowest.value;
      to += lowest.value != 0xFFFF;
    }
    return to;
  }

  PENSTOK_INLINE void merge_lowest(Step& step) {
    Piece& piece = *step.piece;
    const uint64_t lanes = piece.lanes;
    const uint64_t after = lanes & (~uint64_t{1} << step.lane);
    const uint64_t after_next = after & (after - 1);
    const auto removed = _tzcnt_u64(after), next = _tzcnt_u64(after_next);
    const auto previous = 63 - _lzcnt_u64(_bzhi_u64(lanes, step.lane));
    piece.lanes = lanes ^ after ^ after_next;
    piece.ids[step.lane] = static_cast<uint16_t>(step.merged);
    piece.ranks[removed] = 0xFFFF;
    step.previous = static_cast<uint32_t>(previous);
    step.left = pairs_.prefetch(piece.ids[previous], step.merged);
    step.right = pairs_.prefetch(step.merged, piece.ids[next]);
  }

  PENSTOK_INLINE void set_new_ranks(const Step& step) {
    step.piece->ranks[step.lane] = pairs_.read(step.right);
    step.piece->ranks[step.previous] = pairs_.read(step.left);
  }

  const BytePair<uint16_t>* const byte_pairs_;
  const PairTable16& pairs_;
  // The pieces that have up to 8 ranks after their sure merges, up to 16, and more. They are merged
  // in the same rounds: a few long ones alone would wait for every load.
  static constexpr unsigned kLists = 3;
  unsigned num_listed_[kLists];
  Piece* listed_[kLists][kMost];
  Step steps_[kMost + 1];
  Piece pieces_[kMost];
  SureMerge merges_[kMost * kMaxBytes / 2 + 4];
};

}  // namespace penstok::kernel::PENSTOK_ISA

#endif
