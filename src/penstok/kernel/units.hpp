// What merging a piece in another script starts from: characters where that is exact
// (character_starts.hpp), else bytes. A third to a half as many as bytes, and as many merges fewer.
#pragma once

#include "bytes.hpp"
#include "simd.hpp"
#include "state.hpp"

namespace penstok::kernel::PENSTOK_ISA {

constexpr unsigned kMostUnits = 32;

template <class Id>
struct Units {
  unsigned count;   // above kMostUnits: the piece has more
  uint64_t joints;  // bit i: units i and i + 1 might be merged
  Id ids[kMostUnits + 4];
};

template <class Id>
PENSTOK_INLINE void find_units(const State<Id>& state, const uint8_t* p, size_t length,
                                Units<Id>& units) {
  const uint8_t *at = p, *const end = p + length;
  unsigned count = 0;
  uint64_t joints = 0;  // bit i: units i - 1 and i
  while (at < end && count <= kMostUnits) {
    const bool touches = at > p && state.junctions.bytes_touch(at[-1], at[0]);
    joints |= uint64_t{touches} << count;
    if (*at < 0x80) {
      units.ids[count++] = state.merges.byte_id(*at++);
      continue;
    }
    const unsigned bytes = *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;
    const bool is_cut = (touches && state.borders.may_end_inside(at[-1], at[0])) ||
                        (at + bytes < end &&
                         state.borders.may_begin_inside(at[bytes - 1], at[bytes]));
    if (is_cut || bytes == 4) {
      joints |= bits_below(bytes - 1) << (count + 1);
      for (unsigned i = 0; i < bytes; ++i) units.ids[count++] = state.merges.byte_id(at[i]);
    } else {
      const uint32_t code_point = bytes == 2 ? code_point2(at) : code_point3(at);
      const CharacterStart<Id>& start = state.character_starts()[code_point];
      std::memcpy(units.ids + count, start.ids, sizeof start.ids);
      joints |= uint64_t{start.joints} << (count + 1);
      count += start.count;
    }
    at += bytes;
  }
  units.count = count;
  units.joints = joints >> 1;
}

}  // namespace penstok::kernel::PENSTOK_ISA
