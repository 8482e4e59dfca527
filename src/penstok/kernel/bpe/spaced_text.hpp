// What SentencePiece does to spaces before it encodes: a space before every document, and U+2581,
// which it writes spaces as, is the same as a space.
#pragma once

#include <memory>
#include <vector>

#include "bpe/variant.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

class SpacedText {
 public:
  explicit SpacedText(bool adds_space) : adds_space_(adds_space) {}

  // Refers to the text and documents to encode in place of these: a copy where something changes,
  // valid until the next call. Documents that are empty, or continue, get no space.
  void prepare(const uint8_t*& text, size_t& size, DocumentParts& documents);
  void trim();  // releases an unusually large copy

 private:
  uint8_t* copy_document(const uint8_t* text, size_t begin, size_t end, uint8_t* to) const;

  bool adds_space_;
  std::unique_ptr<uint8_t[]> copy_;
  size_t copy_bytes_ = 0;
  std::vector<int64_t> starts_, ends_;
};

}  // namespace penstok::kernel
