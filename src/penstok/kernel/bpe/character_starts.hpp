// Where merging may start from whole characters instead of bytes: non-ASCII text with 32-bit ids.
//
// A character c of a piece may start as the ids that its own bytes are merged to, if
//
// 1. no token contains a part of c and something next to it. Then the merges inside c are those of
//    c alone, and only the whole of c is merged with its neighbours;
// 2. every token that contains c and more has a higher rank than all merges inside c.
//
// Why that changes nothing: take the lowest merge of the piece, of rank k, at any time while
// merging from bytes. Starting from c makes further merges available only because c is finished
// early. They have higher ranks than the merges inside c (2), of which at least one is still to
// come, of rank k or more. So the lowest merge is the same.
//
// (1) follows from the characters at the borders of c, (2) is known for each character.
#pragma once

#include "bpe/memory.hpp"
#include "bpe/vocabulary.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// How many initial ids are merged together. There are masks of them, and of up to three more that
// the last character adds, in 64 bits.
constexpr unsigned kMaxInitialIds = 60;

// What is known about a character, in 8 bytes, because every character of a piece is looked up.
struct CharacterStart {
  uint32_t id;     // the initial id, if there is only one
  uint8_t count;   // of initial ids: those after merging, or the bytes if (2) does not hold
  uint8_t joints;  // bit i: ids i and i + 1 might be merged; not 0 if they are bytes
  uint8_t preceded, followed;  // the numbers of its sets in CharacterBorders
};

// Which borders between two neighbouring characters a token may cross.
//
// Two characters that are side by side in a token are a pair in a set, hashed to single bits. If
// its bit is not set, no merge crosses the border between the two, unless tokens contain a part of
// one. That is so for most borders between two Chinese characters, also in large vocabularies,
// whose tokens contain nearly every two bytes side by side.
//
// Few tokens contain a part of a character and something next to it: o200k has 245 such borders. A
// part counts by its byte at the border, and each character has two sets of such bytes: of parts
// before it and of parts after it.
class CharacterBorders {
 public:
  CharacterBorders() = default;
  // Also writes the numbers of sets to `starts`, one for every code point below 0x10000.
  CharacterBorders(const Vocabulary& vocabulary, CharacterStart* starts);

  // The number of sets that contain all bytes, which is a safe answer for any character.
  static constexpr uint8_t kAnyByte = 255;

  // One of the two characters at a border, and its byte there.
  struct Side {
    uint32_t code_point;
    const CharacterStart* start;
    uint8_t byte;
  };

  // What tokens may do at a border; true is always a safe answer.
  struct Crossing {
    bool any;            // some token crosses it
    bool begins_inside;  // one begins with a part of the left character
    bool ends_inside;    // one ends with a part of the right character
  };

  PENSTOK_INLINE Crossing between(const Side& left, const Side& right) const {
    const bool both = contains(preceding_parts_[right.byte & 63], left.byte) & right.byte >> 7;
    const bool begins_inside = contains(preceding_[right.start->preceded], left.byte) | both;
    const bool ends_inside = contains(following_[left.start->followed], right.byte) | both;
    const bool any = has_pair(left.code_point, right.code_point) | begins_inside | ends_inside;
    return {any, begins_inside, ends_inside};
  }

 private:
  using ByteSet = uint64_t;  // of the lower six bits of bytes that are not ASCII
  static constexpr unsigned kBits = 19;  // 64 KB

  PENSTOK_INLINE static bool contains(ByteSet set, uint8_t byte) {
    return byte >> 7 & set >> (byte & 63) & 1;
  }
  PENSTOK_INLINE static uint32_t pair_number(uint32_t left, uint32_t right) {
    return (left * 0x9E3779B1u + right * 0x85EBCA77u) >> (32 - kBits);
  }
  PENSTOK_INLINE bool has_pair(uint32_t left, uint32_t right) const {
    const uint32_t number = pair_number(left, right);
    return pairs_.as<uint32_t>()[number >> 5] >> (number & 31) & 1;
  }
  void add_token(const std::string& bytes, CharacterStart* starts);

  Buffer pairs_;
  ByteSet preceding_[256] = {}, following_[256] = {};  // 0: the empty set
  ByteSet preceding_parts_[64] = {};  // the same for parts, by their first byte
  uint8_t num_preceding_ = 0, num_following_ = 0;
};

// For each code point below 0x10000, the lowest rank of a token that contains the character and
// more; kNoMerge if there is none.
std::vector<uint32_t> lowest_ranks_around_characters(const Vocabulary& vocabulary);

}  // namespace penstok::kernel
