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

template <class Id>
PENSTOK_INLINE void find_initial_ids(const State<Id>& state, const uint8_t* p, size_t length,
                                     InitialIds<Id>& initial) {
  const uint8_t *at = p, *const end = p + length;
  unsigned count = 0;
  uint64_t joints = 0;  // bit i: ids i - 1 and i
  while (at < end && count <= kMaxInitialIds) {
    const bool touches = at > p && state.junctions.bytes_touch(at[-1], at[0]);
    joints |= uint64_t{touches} << count;
    if (*at < 0x80) {
      initial.ids[count++] = state.merges.byte_id(*at++);
      continue;
    }
    const unsigned bytes = *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;
    const bool is_cut = (touches && state.borders.may_end_inside(at[-1], at[0])) ||
                        (at + bytes < end &&
                         state.borders.may_begin_inside(at[bytes - 1], at[bytes]));
    if (is_cut || bytes == 4) {
      joints |= bits_below(bytes - 1) << (count + 1);
      for (unsigned i = 0; i < bytes; ++i) initial.ids[count++] = state.merges.byte_id(at[i]);
    } else {
      const uint32_t code_point = bytes == 2 ? code_point2(at) : code_point3(at);
      const CharacterStart<Id>& start = state.character_starts()[code_point];
      std::memcpy(initial.ids + count, start.ids, sizeof start.ids);
      joints |= uint64_t{start.joints} << (count + 1);
      count += start.count;
    }
    at += bytes;
  }
  initial.count = count;
  initial.joints = joints >> 1;
}

}  // namespace penstok::kernel::PENSTOK_ISA
