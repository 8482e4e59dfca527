// The ids that merging a non-ASCII piece starts from: those of characters where that is exact
// (character_starts.hpp), otherwise of bytes. There are a third to a half as many characters as
// bytes, which saves as many merges.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

constexpr unsigned kMaxInitialIds = 62;  // that are merged together

template <class Id>
struct InitialIds {
  unsigned count = 0;
  uint64_t joints = 0;  // bit i: ids i and i + 1 might be merged
  Id ids[kMaxInitialIds + 4];

  PENSTOK_INLINE void drop(unsigned num_first) {
    for (unsigned i = num_first; i < count; ++i) ids[i - num_first] = ids[i];
    joints >>= num_first;
    count -= num_first;
  }
};

// Appends the ids of the character at p; `is_cut` if a token may begin or end inside it.
template <class Id>
PENSTOK_INLINE void add_character(const State<Id>& state, const uint8_t* p, Character character,
                                  bool is_cut, InitialIds<Id>& initial) {
  Id* const to = initial.ids + initial.count;
  if (character.bytes == 1) {
    *to = state.merges.byte_id(*p);
    ++initial.count;
  } else if (is_cut || character.bytes == 4) {
    for (unsigned i = 0; i < character.bytes; ++i) to[i] = state.merges.byte_id(p[i]);
    initial.joints |= bits_below(character.bytes - 1) << initial.count;
    initial.count += character.bytes;
  } else {
    const CharacterStart<Id>& start = state.character_starts()[character.code_point];
    std::memcpy(to, start.ids, sizeof start.ids);
    initial.joints |= uint64_t{start.joints} << initial.count;
    initial.count += start.count;
  }
}

// Goes through a piece and finds its initial ids, as many at a time as can be merged together.
template <class Id>
class InitialIdReader {
 public:
  PENSTOK_INLINE InitialIdReader(const State<Id>& state, const uint8_t* p, size_t length)
      : state_(state), p_(p), end_(p + length), character_(character_at(p)) {}

  PENSTOK_INLINE bool is_at_end() const { return p_ == end_; }

  // Appends ids until there are kMaxInitialIds or a few more, or the piece ends.
  PENSTOK_INLINE void fill(InitialIds<Id>& initial) {
    while (p_ < end_ && initial.count < kMaxInitialIds) {
      const uint8_t* const after = p_ + character_.bytes;
      Character next{};
      Crossing crossing{};
      if (after < end_) {
        next = character_at(after);
        crossing = state_.borders.between(character_.code_point, after[-1], next.code_point,
                                          after[0]);
      }
      add_character(state_, p_, character_, before_.ends_inside | crossing.begins_inside, initial);
      initial.joints |= uint64_t{crossing.any} << (initial.count - 1);
      p_ = after;
      character_ = next;
      before_ = crossing;
    }
  }

 private:
  using Crossing = CharacterBorders::Crossing;

  const State<Id>& state_;
  const uint8_t* p_;
  const uint8_t* const end_;
  Character character_;
  Crossing before_{};
};

}  // namespace penstok::kernel::PENSTOK_ISA
