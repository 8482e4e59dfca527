// Which borders between two kinds of characters no token crosses: where text may be divided if its
// tokenizer has no pattern (SentencePiece).
#pragma once

#include <vector>

#include "bpe/vocabulary.hpp"
#include "bytes.hpp"
#include "text/unicode_classes.hpp"

namespace penstok::kernel {

// The kinds of characters; of these, the first five are ASCII.
enum : unsigned {
  kAsciiLetter,
  kAsciiNumber,
  kAsciiOther,
  kAsciiWhite,  // white space other than the space
  kBlank,       // the space
  kWideLetter,
  kWideNumber,
  kWideOther,
  kWideWhite,
  kNumKinds
};
constexpr unsigned kNumAsciiKinds = kWideLetter;

// A merge makes a token of two parts of it. If no token contains a character of one kind before one
// of another, no merge ever crosses such a border, and what is on either side is merged as if it
// were a text of its own.
struct PieceBorders {
  explicit PieceBorders(const std::vector<Token>& tokens);

  // All ones if no token contains a character of the first kind before one of the second, else 0.
  uint64_t free[kNumKinds][kNumKinds];
};

}  // namespace penstok::kernel
