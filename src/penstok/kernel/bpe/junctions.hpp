// Junctions: positions inside a piece that no merge can ever cross.
#pragma once

#include "bpe/vocabulary.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// If no token contains two bytes side by side, no merge will ever join them, so a piece can be
// divided between them and its halves encoded separately, with the same ids. Tokens of GPT-2 span
// only 57 pairs of a continuation byte and a lead byte: nearly every border between two Chinese,
// Korean, Thai or Hindi characters is such a *free junction*. Without this text in other scripts
// falls from 281 to 125 MB/s.
class Junctions {
 public:
  Junctions() = default;
  explicit Junctions(const Vocabulary& vocabulary);

  // Does any token contain `left` followed by `right`?
  PENSTOK_INLINE bool bytes_touch(uint8_t left, uint8_t right) const {
    return contains(touching_[left], right);
  }

  // May text be divided between the two, each half being encoded as a text? Not if a half could
  // become a piece that is a token which no merges produce: that would change its ids.
  bool may_divide(uint8_t left, uint8_t right) const {
    return !bytes_touch(left, right) && !contains(whole_ends_, left) &&
           !contains(whole_starts_, right);
  }

  // May a token span the position between a character of three bytes, of which these are the last
  // two, and a character that begins with `lead`?
  bool may_join(uint8_t second, uint8_t third, uint8_t lead) const {
    return bytes_touch(third, lead) && contains(before_[number_[third & 63][lead - 0xC0]], second);
  }

  // May a token span the position before `at`, inside the piece [begin, end)? True is always a safe
  // answer. Between two characters the next bytes on both sides are checked too.
  PENSTOK_INLINE bool may_span(const uint8_t* at, const uint8_t* begin, const uint8_t* end) const {
    const uint8_t left = at[-1], right = at[0];
    if (!bytes_touch(left, right)) return false;
    const bool between_characters = (left & 0xC0) == 0x80 && right >= 0xC0;
    if (!between_characters || at - begin < 2 || end - at < 2) return true;
    const unsigned number = number_[left & 63][right - 0xC0];
    return contains(before_[number], at[-2]) && contains(after_[number], at[1]);
  }

 private:
  using ByteSet = uint64_t[4];
  static constexpr unsigned kNumbers = 256;

  PENSTOK_INLINE static bool contains(const ByteSet& set, uint8_t byte) {
    return set[byte >> 6] >> (byte & 63) & 1;
  }
  void add_token(const std::string& bytes);
  unsigned number_of(uint8_t left, uint8_t right);

  ByteSet touching_[256] = {};
  ByteSet whole_starts_ = {}, whole_ends_ = {};  // of the tokens in whole_tokens.hpp
  // The (continuation, lead) pairs that some token spans are numbered from 1; `before_` and
  // `after_` hold the bytes around the pair in those tokens, all bytes if the token ends there. The
  // last number is shared by all further pairs and holds every byte.
  uint8_t number_[64][64] = {};
  ByteSet before_[kNumbers] = {};
  ByteSet after_[kNumbers] = {};
  unsigned last_number_ = 0;
};

}  // namespace penstok::kernel
