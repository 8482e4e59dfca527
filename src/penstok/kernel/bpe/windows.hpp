// Long non-ASCII pieces with 32-bit ids: merged in windows that overlap.
//
// Thai has no spaces, and with o200k a phrase of it is one piece, in which tokens may cross nearly
// every border between characters. A window of it is merged like a piece of its own, in the lanes.
// What two neighbouring windows are merged to is joined at a token that both have in the same
// place. That is exact:
//
// 1. Tokens are what a text is merged to if and only if every two neighbours among them are what
//    their own bytes are merged to. Compare merging the text with merging the bytes of two
//    neighbours alone. As long as no merge crosses the border of a token, the merges inside the two
//    are the same, in the same order: when the lowest pair of the text is inside the two, it is
//    also the lowest pair of the two. So if a merge ever crosses the border between them in the
//    text, the first such merge is also made in the two alone, and the other way round.
// 2. Up to the common token all neighbours are from the first window, and from it on all are from
//    the second.
//
// Initial ids of the piece are also those of its windows: with fewer characters around them, fewer
// merges are possible. If two windows have no token in common, the piece is encoded another way.
#pragma once

#include "bpe/initial_ids.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

constexpr unsigned kWindowOverlap = 20;  // initial ids
constexpr unsigned kWindowStep = kMaxInitialIds - kWindowOverlap;

// How many of some initial ids are a window, and where the next one begins. It needs no overlap
// where no token spans the border between two ids.
struct WindowSize {
  unsigned count, step;
};
template <class Id>
PENSTOK_INLINE WindowSize size_of_window(const InitialIds<Id>& initial) {
  const uint64_t borders = ~initial.joints & bits_below(kMaxInitialIds) & ~bits_below(kWindowStep);
  if (borders == 0) return {kMaxInitialIds, kWindowStep};
  const unsigned count = 64 - static_cast<unsigned>(__builtin_clzll(borders));
  return {count, count};
}

// Where in the second window, which begins `step` initial ids after the first, the first token
// begins that both have; kNoJoin if there is none.
constexpr unsigned kNoJoin = 64;
PENSTOK_INLINE unsigned find_join(uint64_t first_starts, unsigned step, uint64_t second_starts) {
  const uint64_t first = first_starts >> step;
  if (first == 1) return 0;  // no overlap: no token spans the border
  const uint64_t both = first & second_starts, either = first | second_starts;
  for (uint64_t rest = both; rest != 0; rest &= rest - 1) {
    const unsigned at = lowest_bit(rest);
    const uint64_t after = either & ~uint64_t{1} << at;
    if (both & after & -after) return at;
  }
  return kNoJoin;
}

// Writes the ids of a piece and returns the position after the last; nullptr if two of its windows
// cannot be joined.
template <class Id>
PENSTOK_INLINE Id* put_windows(const Window<Id>* windows, size_t count, Id* out) {
  unsigned begin = 0;
  for (const Window<Id>* window = windows;; ++window) {
    const unsigned first = count_bits(window->starts & bits_below(begin));
    std::memcpy(out, window->ids + first, (kMaxInitialIds - first) * sizeof(Id));
    if (window + 1 == windows + count) return out + count_bits(window->starts) - 1 - first;
    begin = find_join(window->starts, window->step, window[1].starts);
    if (begin == kNoJoin) return nullptr;
    out += count_bits(window->starts & bits_below(window->step + begin)) - first;
  }
}

}  // namespace penstok::kernel::PENSTOK_ISA
