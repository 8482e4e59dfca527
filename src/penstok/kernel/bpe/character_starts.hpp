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

// The initial ids of a character: those after merging, or its bytes if (2) does not hold.
template <class Id>
struct CharacterStart {
  Id ids[3];
  uint16_t count;
  uint16_t joints;  // bit i: ids i and i + 1 might be merged
};

// Which borders between two neighbouring characters a token may cross.
//
// A set of pairs, hashed to single bits: for every border inside a token the characters on its two
// sides, where a character that the token contains only a part of counts by the byte at the border.
// If no bit is set, no merge crosses the border. That is so for most borders between two Chinese
// characters, also in large vocabularies, whose tokens contain nearly every two bytes side by side.
class CharacterBorders {
 public:
  explicit CharacterBorders(const Vocabulary& vocabulary);

  // What tokens may do at a border; true is always a safe answer.
  struct Crossing {
    bool any;            // some token crosses it
    bool begins_inside;  // one begins with a part of the left character
    bool ends_inside;    // one ends with a part of the right character
  };

  // `last` is the last byte of the character `left`, `first` the first one of `right`.
  PENSTOK_INLINE Crossing between(uint32_t left, uint8_t last, uint32_t right,
                                  uint8_t first) const {
    const uint32_t left_part = part(last), right_part = part(first);
    const bool both_parts = contains(left_part, right_part);
    const bool begins_inside = contains(left_part, right) | both_parts;
    const bool ends_inside = contains(left, right_part) | both_parts;
    const bool any = contains(left, right) | begins_inside | ends_inside;
    return {any, begins_inside, ends_inside};
  }

 private:
  static constexpr unsigned kBits = 19;  // 64 KB

  PENSTOK_INLINE static uint32_t part(uint8_t byte) {
    return 0x110000u + byte;  // above every code point
  }
  PENSTOK_INLINE static uint32_t number_of(uint32_t left, uint32_t right) {
    return (left * 0x9E3779B1u + right * 0x85EBCA77u) >> (32 - kBits);
  }
  PENSTOK_INLINE bool contains(uint32_t left, uint32_t right) const {
    const uint32_t number = number_of(left, right);
    return words_.as<uint32_t>()[number >> 5] >> (number & 31) & 1;
  }
  void add_token(const std::string& bytes);

  Buffer words_;
};

// For each code point below 0x10000, the lowest rank of a token that contains the character and
// more; kNoMerge if there is none.
std::vector<uint32_t> lowest_ranks_around_characters(const Vocabulary& vocabulary);

}  // namespace penstok::kernel
