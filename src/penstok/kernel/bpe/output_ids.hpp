// From the ids that merging uses, which are ranks, to those of the tokenizer's file.
//
// SentencePiece merges characters by score and spells a character that is not in its vocabulary as
// bytes. Here characters are merged from bytes, before everything else; what remains of one that is
// not in the vocabulary is bytes and parts of a character, of two or three bytes. Each of those
// parts is written as its bytes.
#pragma once

#include <vector>

#include "bpe/vocabulary.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

class OutputIds {
 public:
  // How `ids` marks the parts of characters; their ids must follow each other.
  static constexpr uint32_t kPart = 0xFFFF'FFFF;

  OutputIds() = default;
  // `ids` has the output id of every id.
  OutputIds(std::vector<uint32_t> ids, const Vocabulary& vocabulary);

  bool is_empty() const { return ids_.empty(); }
  uint32_t max_id() const { return max_id_; }

  // Replaces `count` ids and returns how many there are then: at most one for each byte of text.
  template <class Id>
  size_t replace(Id* ids, size_t count) const;

 private:
  struct Part {
    unsigned count;
    uint32_t ids[3];
  };

  template <class Id>
  size_t replace_from_the_end(Id* ids, size_t begin, size_t end) const;

  std::vector<uint32_t> ids_;
  std::vector<uint16_t> narrow_ids_;  // the same, if they fit
  std::vector<Part> parts_;
  uint32_t first_part_ = 0;
  uint32_t max_id_ = 0;
};

}  // namespace penstok::kernel
