// BLOOM's pattern, on masks of 64 bytes. Its file has one split:
//
//    ?[^(\s|[.,!?…。，、।۔،])]+
//
// The brackets inside the set are a set of their own, the parentheses and the bar are characters of
// it. So a word consists of all characters but white space and `stops` (unicode_classes.hpp), with
// the blank before it. What is between two words is a piece too.
//
//   word   begins a piece unless one of its characters or a blank precedes it.
//   blank  begins a piece before a word.
//   stop   (or white space) begins a piece after a word.
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Turns the byte classes of one document, 64 bytes at a time in order, into masks of piece starts.
class BloomPattern {
 public:
  using Classes = StopByteClasses;
  static constexpr bool kDividesLatin = false;
  static constexpr bool kClassifiesAscii = false;

  // As in pattern_gpt2.hpp.
  PENSTOK_INLINE uint64_t of(const Classes& classes, const Classes& next, const uint8_t*,
                             size_t left) {
    const uint64_t word = ~(classes.space | classes.stop), next_word = ~(next.space | next.stop);
    const uint64_t after_word = word << 1 | word_, before_word = word >> 1 | next_word << 63;
    const uint64_t after_blank = classes.blank << 1 | blank_;
    const uint64_t starts = (word & ~after_word & ~after_blank) | (classes.blank & before_word) |
                            (~word & after_word) | first_;
    first_ = 0;
    word_ = word >> 63;
    blank_ = classes.blank >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

 private:
  uint64_t first_ = 1;            // a piece begins with the document
  uint64_t word_ = 0, blank_ = 0;  // the byte before
};

}  // namespace penstok::kernel::PENSTOK_ISA
