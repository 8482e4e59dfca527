// The tokens, the merges that make them, and the proofs the rest of the kernel rests on.
#pragma once

#include <string>
#include <vector>

#include "pair_table.hpp"

namespace penstock::kernel {

struct Token {
  std::string bytes;
  uint32_t id;  // also its rank: of two possible merges the one with the lower id comes first
};

// A byte-level BPE vocabulary. The constructor throws std::invalid_argument, naming the token, when
// the kernel could not encode with it exactly:
//
// 1. every byte is a token, ids are distinct and fit 21 bits;
// 2. every longer token is *reachable*: encoding its own bytes ends in it. Its last merge is then
//    the only pair of tokens ever merged into it (whatever stands around), so a table of pairs can
//    replace tiktoken's table of byte strings;
// 3. a token's id is above the ids of all merges inside it. So merging all occurrences of the
//    lowest rank at once never makes a pair of lower or equal rank (merge_long.hpp).
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<Token> tokens);

  const std::vector<Token>& tokens() const { return tokens_; }  // in order of id
  const std::vector<Merge>& merges() const { return merges_; }
  const uint32_t* byte_ids() const { return byte_ids_; }
  uint32_t max_id() const { return tokens_.back().id; }

 private:
  void find_byte_ids();
  void derive_merges();

  std::vector<Token> tokens_;
  std::vector<Merge> merges_;
  uint32_t byte_ids_[256] = {};
};

}  // namespace penstock::kernel
