// The ids that merging a non-ASCII piece starts from: those of characters where that is exact
// (character_starts.hpp), otherwise of bytes. There are a third to a half as many characters as
// bytes, which saves as many merges.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

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

// A character of more than three bytes, which always starts as bytes.
constexpr CharacterStart kLongStart = {0, 4, 7, CharacterBorders::kAnyByte,
                                       CharacterBorders::kAnyByte};

template <class Id>
PENSTOK_INLINE const CharacterStart& start_of(const State<Id>& state, uint32_t code_point) {
  return PENSTOK_LIKELY(code_point < kCharacters) ? state.character_starts()[code_point]
                                                  : kLongStart;
}

// Goes through a piece and finds its initial ids, as many at a time as can be merged together.
template <class Id>
class InitialIdReader {
 public:
  PENSTOK_INLINE InitialIdReader(const State<Id>& state, const uint8_t* p, size_t length)
      : state_(state),
        p_(p),
        end_(p + length),
        character_(character_at(p)),
        start_(&start_of(state, character_.code_point)) {}

  PENSTOK_INLINE bool is_at_end() const { return p_ == end_; }

  // Appends ids until there are kMaxInitialIds or a few more, or the piece ends.
  PENSTOK_INLINE void fill(InitialIds<Id>& initial) {
    while (p_ < end_ && initial.count < kMaxInitialIds) {
      const uint8_t* const after = p_ + character_.bytes;
      Character next{};
      const CharacterStart* next_start = nullptr;
      Crossing crossing{};
      if (PENSTOK_LIKELY(after < end_)) {
        next = character_at(after);
        next_start = &start_of(state_, next.code_point);
        crossing = state_.borders.between({character_.code_point, start_, after[-1]},
                                          {next.code_point, next_start, after[0]});
      }
      add_character(before_.ends_inside | crossing.begins_inside, initial);
      initial.joints |= uint64_t{crossing.any} << (initial.count - 1);
      p_ = after;
      character_ = next;
      start_ = next_start;
      before_ = crossing;
    }
  }

 private:
  using Crossing = CharacterBorders::Crossing;

  // Appends the ids of the character at p_; `is_cut` if a token may begin or end inside it.
  PENSTOK_INLINE void add_character(bool is_cut, InitialIds<Id>& initial) const {
    Id* const to = initial.ids + initial.count;
    const CharacterStart start = *start_;
    if (PENSTOK_LIKELY(start.count == 1 && !is_cut)) {
      *to = static_cast<Id>(start.id);
      ++initial.count;
    } else if (is_cut || start.joints != 0) {
      for (unsigned i = 0; i < character_.bytes; ++i) to[i] = state_.merges.byte_id(p_[i]);
      initial.joints |= bits_below(character_.bytes - 1) << initial.count;
      initial.count += character_.bytes;
    } else {
      std::memcpy(to, state_.characters()[character_.code_point].ids, 3 * sizeof(Id));
      initial.count += start.count;
    }
  }

  const State<Id>& state_;
  const uint8_t* p_;
  const uint8_t* const end_;
  Character character_;
  const CharacterStart* start_;  // of that character
  Crossing before_{};            // at the border before it
};

}  // namespace penstok::kernel::PENSTOK_ISA
