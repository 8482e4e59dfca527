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
// (1) follows from the bytes at the borders of c, (2) is known for each character.
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

class CharacterBorders {
 public:
  CharacterBorders() = default;
  explicit CharacterBorders(const Vocabulary& vocabulary);

  // May a token end with a part of the character that begins with `right`, after `left`?
  PENSTOK_INLINE bool may_end_inside(uint8_t left, uint8_t right) const {
    return contains(end_inside_, left, right);
  }
  // May a token begin with a part of the character that ends with `left`, before `right`?
  PENSTOK_INLINE bool may_begin_inside(uint8_t left, uint8_t right) const {
    return contains(begin_inside_, left, right);
  }

 private:
  using PairSet = uint64_t[256][4];

  PENSTOK_INLINE static bool contains(const PairSet& set, uint8_t left, uint8_t right) {
    return set[left][right >> 6] >> (right & 63) & 1;
  }
  void add_token(const std::string& bytes);

  PairSet end_inside_ = {}, begin_inside_ = {};
};

// For each code point below 0x10000, the lowest rank of a token that contains the character and
// more; kNoMerge if there is none.
std::vector<uint32_t> lowest_ranks_around_characters(const Vocabulary& vocabulary);

}  // namespace penstok::kernel
