// The ids that merging a non-ASCII piece starts from: those of characters where that is exact
// (character_starts.hpp), otherwise of bytes. There are a third to a half as many characters as
// bytes, which saves as many merges.
#pragma once

#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

constexpr unsigned kMaxInitialIds = 32;

template <class Id>
struct InitialIds {
  unsigned count;   // above kMaxInitialIds: the piece has too many
  uint64_t joints;  // bit i: ids i and i + 1 might be merged
  Id ids[kMaxInitialIds + 4];
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

template <class Id>
PENSTOK_INLINE void find_initial_ids(const State<Id>& state, const uint8_t* p, size_t length,
                                     InitialIds<Id>& initial) {
  using Crossing = CharacterBorders::Crossing;
  const uint8_t* const end = p + length;
  initial.count = 0;
  initial.joints = 0;
  Character character = character_at(p);
  Crossing before{};
  for (;;) {
    const uint8_t* const after = p + character.bytes;
    if (after >= end) break;
    const Character next = character_at(after);
    const Crossing crossing =
        state.borders.between(character.code_point, after[-1], next.code_point, after[0]);
    add_character(state, p, character, before.ends_inside | crossing.begins_inside, initial);
    if (initial.count > kMaxInitialIds) return;
    initial.joints |= uint64_t{crossing.any} << (initial.count - 1);
    p = after;
    character = next;
    before = crossing;
  }
  add_character(state, p, character, before.ends_inside, initial);
}

}  // namespace penstok::kernel::PENSTOK_ISA
