// Pieces of a tokenizer that has no pattern: text is divided between two kinds of characters where
// no token of the vocabulary crosses (bpe/piece_borders.hpp). With the vocabularies of Llama 2 and
// Gemma these are words with the spaces before them, numbers, punctuation and line breaks.
#pragma once

#include "bpe/piece_borders.hpp"
#include "bytes.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

class BorderPattern {
 public:
  using Classes = ByteClasses;
  static constexpr bool kDividesLatin = false;
  static constexpr bool kClassifiesAscii = false;

  PENSTOK_INLINE explicit BorderPattern(const PieceBorders& borders) : borders_(borders) {}

  // As in pattern_gpt2.hpp.
  PENSTOK_INLINE uint64_t of(const ByteClasses& classes, const ByteClasses&, const uint8_t*,
                             size_t left) {
    const uint64_t letter = classes.letter, number = classes.number, space = classes.space;
    const uint64_t high = classes.high, other = ~(letter | number | space);
    const uint64_t kinds[kNumKinds] = {letter & ~high,
                                       number & ~high,
                                       other & ~high,
                                       space & ~high & ~classes.blank,
                                       classes.blank,
                                       letter & high,
                                       number & high,
                                       other & high,
                                       space & high};
    const uint64_t divided = PENSTOK_LIKELY((high | high_) == 0) ? divide<kNumAsciiKinds>(kinds)
                                                                 : divide<kNumKinds>(kinds);
    const uint64_t starts = (divided & ~classes.continuation) | first_;
    first_ = 0;
    high_ = high >> 63;
    for (unsigned i = 0; i < kNumKinds; ++i) before_[i] = kinds[i] >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

 private:
  // The bytes before which text is divided, if only the first kinds occur.
  template <unsigned kKinds>
  PENSTOK_INLINE uint64_t divide(const uint64_t (&kinds)[kNumKinds]) const {
    uint64_t divided = 0;
    for (unsigned left = 0; left < kKinds; ++left) {
      uint64_t free = 0;
      for (unsigned right = 0; right < kKinds; ++right) {
        free |= kinds[right] & borders_.free[left][right];
      }
      divided |= free & (kinds[left] << 1 | before_[left]);
    }
    return divided;
  }

  const PieceBorders& borders_;
  uint64_t first_ = 1;  // a piece begins with the document
  uint64_t high_ = 0;   // is the byte before the 64 not ASCII, as bit 0
  uint64_t before_[kNumKinds] = {};  // is it of this kind, as bit 0
};

}  // namespace penstok::kernel::PENSTOK_ISA
