// Pieces that are in no table: divided at free junctions, each part encoded separately.
#pragma once

#include "bpe/initial_ids.hpp"
#include "bpe/merge_long.hpp"
#include "bpe/merge_short.hpp"
#include "bpe/piece_cache.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// All functions here write the ids at `out` (and overwrite up to kWriteSlack ids after them) and
// return the position after the last id; they may read kReadSlack bytes past their input.

template <class Id>
PENSTOK_INLINE Id* merge_part(State<Id>& state, const uint8_t* p, size_t length, Id* out) {
  if (length <= kShortMerge) {
    return out + merge_short(state.merges, p, static_cast<unsigned>(length), out);
  }
  return out + merge_long(state.merges, state.merge_workspace, p, length, out);
}

// Uses the piece table: parts repeat as pieces do.
template <class Id>
PENSTOK_INLINE Id* encode_part(State<Id>& state, const uint8_t* p, size_t length, Id* out) {
  if (length > kShortPiece) return merge_part(state, p, length, out);
  const PieceKey key = make_key(p, length);
  const uint32_t line_number = hash_key(key, state.pieces.short_bits);
  const PieceLine<Id>& line = state.pieces.lines()[line_number];
  const unsigned way = find_way(line.keys, key);
  if (way < 2 && line.values[way].count <= PieceValue<Id>::kInline) {
    std::memcpy(out, line.values[way].ids, sizeof line.values[way].ids);
    return out + line.values[way].count;
  }
  Id* const end = merge_part(state, p, length, out);
  const auto count = static_cast<size_t>(end - out);
  if (count <= PieceValue<Id>::kInline && !state.whole_tokens.contains(p, length)) {
    store_short(state.pieces, line_number, key, short_value(out, count));
  }
  return end;
}

template <class Id>
PENSTOK_INLINE Id* put_character(Id* out, const CharacterIds<Id>& character) {
  std::memcpy(out, character.ids, sizeof character.ids);
  if constexpr (sizeof(Id) == 2) {
    // Unused ids are all ones: the number of leading ones, 16 per id, gives their count.
    const uint64_t inverted = ~load64(character.ids) | 1;
    return out + ((79 - static_cast<unsigned>(__builtin_clzll(inverted))) >> 4);
  } else {
    unsigned count = 1;
    for (unsigned i = 1; i < 4; ++i) count += character.ids[i] != kNoId<Id>;
    return out + count;
  }
}

// A character of two or three bytes, which has at most three ids.
template <class Id>
PENSTOK_INLINE Id* put_lone_character(Id* out, const CharacterIds<Id>& character) {
  std::memcpy(out, character.ids, sizeof character.ids);
  return out + (character.ids[3] & bits_below(character.kCountBits));
}

// May a token span the position before `at`, inside the piece [begin, end)? True is always a safe
// answer. With 32-bit ids the characters on both sides decide: bytes are not enough there.
template <class Id>
PENSTOK_INLINE bool may_span(const State<Id>& state, const uint8_t* at, const uint8_t* begin,
                             const uint8_t* end) {
  if constexpr (sizeof(Id) == 2) {
    return state.junctions.may_span(at, begin, end);
  } else {
    if (!state.junctions.bytes_touch(at[-1], at[0])) return false;
    if ((at[0] & 0xC0) == 0x80) return true;
    const uint8_t* left = at - 1;
    while ((*left & 0xC0) == 0x80) --left;
    const auto side = [&](const uint8_t* character, uint8_t byte) __attribute__((always_inline)) {
      const uint32_t code_point = character_at(character).code_point;
      return CharacterBorders::Side{code_point, &start_of(state, code_point), byte};
    };
    return state.borders.between(side(left, at[-1]), side(at, at[0])).any;
  }
}

// Writes characters of `kLength` bytes from p on as long as a free junction follows each. Text in
// one script stays in this loop. Reads a byte after the end.
template <unsigned kLength, class Id>
PENSTOK_INLINE const uint8_t* put_characters(const State<Id>& state, const uint8_t* p,
                                             const uint8_t* begin, const uint8_t* end, Id*& out) {
  const CharacterIds<Id>* characters = state.characters();
  for (;;) {
    const uint32_t code_point = kLength == 2 ? code_point2(p) : code_point3(p);
    const CharacterIds<Id>& character = characters[code_point];
    const uint8_t* const after = p + kLength;  // a piece consists of whole characters
    const bool is_last = after == end;
    if (kLength == 3 && !is_last && !character.may_join(*after)) {  // 98 of 100 Chinese characters
      out = put_lone_character(out, character);
      p = after;
      continue;
    }
    if (!is_last && may_span(state, after, begin, end)) return p;
    out = put_lone_character(out, character);
    p = after;
    const bool same_length = kLength == 2 ? *p >= 0xC2 && *p < 0xE0 : (*p & 0xF0) == 0xE0;
    if (is_last || !same_length) return p;
  }
}

template <class Id>
inline Id* encode_at_junctions(State<Id>& state, const uint8_t* p, size_t length, Id* out) {
  const uint8_t *const begin = p, *const end = p + length;
  if (p[0] == ' ' && length >= 3 && p[1] >= 0xC2 && p[1] < 0xF0) {
    const unsigned bytes = p[1] < 0xE0 ? 2 : 3;
    const uint8_t* after = p + 1 + bytes;
    if (after <= end && (after == end || !may_span(state, after, begin, end))) {
      const uint32_t code_point = bytes == 2 ? code_point2(p + 1) : code_point3(p + 1);
      out = put_character(out, state.characters_after_space()[code_point]);
      p = after;
    }
  }
  while (p < end) {  // p is always a free junction
    const uint8_t* const before = p;
    if (*p >= 0xE0 && *p < 0xF0) {
      p = put_characters<3>(state, p, begin, end, out);
    } else if (*p >= 0xC2 && *p < 0xE0) {
      p = put_characters<2>(state, p, begin, end, out);
    }
    if (p != before) continue;
    const uint8_t* after = p + 1;
    while (after < end && may_span(state, after, begin, end)) ++after;
    out = encode_part(state, p, static_cast<size_t>(after - p), out);
    p = after;
  }
  return out;
}

// How many of the `length` bytes from p on are spaces.
PENSTOK_INLINE size_t count_spaces(const uint8_t* p, size_t length) {
  constexpr uint64_t kSpaces = 0x2020202020202020ull;
  size_t count = 0;
  while (count + 8 <= length && load64(p + count) == kSpaces) count += 8;
  while (count < length && p[count] == ' ') ++count;
  return count;
}

template <class Id>
PENSTOK_INLINE Id* put_spaces(const SpaceRuns<Id>& spaces, size_t count, Id* out) {
  std::memcpy(out, spaces.ids.template as<Id>() + spaces.offset[count],
              spaces.count[count] * sizeof(Id));
  return out + spaces.count[count];
}

// Writes a piece of spaces, or of a line break and spaces; false if it is something else.
template <class Id>
PENSTOK_INLINE bool put_indentation(const State<Id>& state, const uint8_t* p, size_t length,
                                    Id*& out) {
  if (length < 2 || length > kLongestSpaceRun || p[1] != ' ') return false;
  if (p[0] == ' ') {
    if (count_spaces(p, length) != length) return false;
    out = put_spaces(state.spaces, length, out);
    return true;
  }
  if (p[0] != '\n' || state.junctions.bytes_touch('\n', ' ')) return false;
  if (count_spaces(p + 1, length - 1) != length - 1) return false;
  *out = state.merges.byte_id('\n');
  out = put_spaces(state.spaces, length - 1, out + 1);
  return true;
}

// At least half of the first 16 bytes belong to non-ASCII characters: junctions pay off, and such
// pieces, being sentences rather than words, rarely repeat.
PENSTOK_INLINE bool mostly_non_ascii(const uint8_t* p) {
  constexpr uint64_t kTop = 0x8080808080808080ull;
  return count_bits(load64(p) & kTop) + count_bits(load64(p + 8) & kTop) >= 8;
}

// Encodes any piece; the general case for those that no faster path handles.
template <class Id>
inline Id* encode_uncommon(State<Id>& state, const uint8_t* p, size_t length, Id* out) {
  if (put_indentation(state, p, length, out)) return out;
  if (length > kLongPiece || (length > kShortPiece && mostly_non_ascii(p))) {
    return encode_at_junctions(state, p, length, out);
  }
  if (length <= kMediumPiece) {
    const MediumKey key = make_medium_key(p, length);
    MediumEntry<Id>& entry = medium_entry(state.pieces, key);
    if (holds(entry, key)) {
      std::memcpy(out, entry.ids, sizeof entry.ids);
      return out + entry.count;
    }
    Id* const end = encode_at_junctions(state, p, length, out);
    store_medium(entry, key, out, static_cast<size_t>(end - out));
    return end;
  }
  LongEntry<Id>& entry = long_entry(state.pieces, p, length);
  if (holds(entry, p, length)) {
    std::memcpy(out, entry.ids, entry.count * sizeof(Id));
    return out + entry.count;
  }
  Id* const end = encode_at_junctions(state, p, length, out);
  store_long(entry, p, length, out, static_cast<size_t>(end - out));
  return end;
}

}  // namespace penstok::kernel::PENSTOK_ISA
