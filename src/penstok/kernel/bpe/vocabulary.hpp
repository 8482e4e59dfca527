// The tokens, the merges that produce them, and the proofs that the rest of the kernel relies on.
#pragma once

#include <string>
#include <vector>

#include "bpe/pair_table.hpp"

namespace penstok::kernel {

struct Token {
  std::string bytes;
  uint32_t id;  // also its rank: of two possible merges the one with the lower id comes first
};

// A byte-level BPE vocabulary. The constructor throws std::invalid_argument, naming the token,
// unless every byte that UTF-8 can have is a token and ids are distinct and fit 21 bits. Encoding is
// then that of tiktoken: a piece that is a token has its id; otherwise the two neighbours whose
// joined bytes are the token of lowest rank are merged, the leftmost of equals first, until there
// are none. What follows from it:
//
// 1. At most one pair produces a token T: the last two parts when the bytes of T alone are merged.
//    Where two neighbours in a piece hold the bytes of T, all merges so far inside those bytes were
//    the lowest of the whole piece, hence the lowest there: those of T alone. So a table of pairs
//    of ids replaces tiktoken's table of byte strings.
// 2. A token that merging its own bytes does not reach is never produced by a merge. It is matched
//    only as a whole piece (whole_tokens.hpp).
// 3. If a token is part of no merge of lower rank than its own, creating it creates only pairs of
//    higher rank. So all its occurrences can be merged at once when it is the lowest
//    (merge_long.hpp). The exceptions are `falling_ids`: none in trained vocabularies, 72 in Llama
//    3.
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<Token> tokens);

  const std::vector<Token>& tokens() const { return tokens_; }  // in order of id
  std::vector<Token> take_tokens() && { return std::move(tokens_); }
  const std::vector<Merge>& merges() const { return merges_; }  // in order of the merged id
  const std::vector<Token>& whole_tokens() const { return whole_tokens_; }  // those of 2
  std::vector<uint32_t> falling_ids() const;                                // those not of 3
  const uint32_t* byte_ids() const { return byte_ids_; }
  uint32_t id_of_longest() const;  // part of no merge, because what it is merged to would be longer
  uint32_t max_id() const { return tokens_.back().id; }

 private:
  void find_byte_ids();
  void derive_merges();
  void refuse_equal_whole_tokens();

  std::vector<Token> tokens_;
  std::vector<Merge> merges_;
  std::vector<Token> whole_tokens_;
  uint32_t byte_ids_[256] = {};
};

}  // namespace penstok::kernel
