// The pattern of cl100k_base and its relatives, on masks of 64 bytes. cl100k_base itself:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} |
//    ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Here `others` are characters that are not letters, numbers or white space; `inline` is white
// space except \r and \n. What the alternatives mean, by the character a piece may begin with:
//
//   letter   begins a piece unless a letter, an inline space or a single other precedes it. An
//            other is single if neither another one nor a blank precedes it.
//   number   begins a piece if no number precedes it, and again after every three.
//   other    begins a piece unless another one or a blank precedes it.
//   newline  belongs to the others (and their newlines) right before it, if any. Otherwise it forms
//            one piece with the white space around it, up to the last newline of the run.
//   inline   begins a piece: as the first of a run, after others' newlines, after the last newline of
//            a run, and as the last of a run that is followed by something (which joins it if it
//            is letters, or others after a blank).
//
// The relatives differ in what a `Rules` says (pattern_rules.hpp). In those that distinguish case
// (o200k: `words` below is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, or the
// same with + and *), marks are letters and others at once:
//
//   mark     belongs to the others before it if those are several, or follow a blank; otherwise to
//            the word. So do the marks and others after it.
//   capital  also begins a piece after a small letter or one without case (or a mark): if the run
//            of such letters contains a small one, or if none of them follows the capitals.
//   slash    can belong to the newlines that others have, and is not an other then.
//
// If Han is apart (Kimi: [\p{Han}]+ is the first alternative), ideographs are no letters of words:
//
//   han      a run of Han is a piece. But its few numbers continue a piece of one or two digits, and
//            its few marks and symbols the others or the blank before them.
#pragma once

#include "bytes.hpp"
#include "text/byte_classes.hpp"
#include "text/pattern_parts.hpp"
#include "text/pattern_rules.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Does a small letter, one without case or a mark follow the capitals that begin at p? `left` bytes
// of the document can be read from p. The result is undefined for malformed text.
template <bool kHanApart>
PENSTOK_INLINE bool capitals_reach_small(const uint8_t* p, size_t left) {
  for (size_t i = 0; i < left;) {
    const unsigned length = p[i] < 0x80 ? 1 : p[i] < 0xE0 ? 2 : p[i] < 0xF0 ? 3 : 4;
    if (left - i < length) return false;
    const uint32_t code_point = length == 1   ? p[i]
                                : length == 2 ? code_point2(p + i)
                                : length == 3 ? code_point3(p + i)
                                              : code_point4(p + i) & 0x1FFFFF;
    const unsigned detail = code_point < 0x110000 ? detail_of(code_point) : kClassOther;
    if (detail != kDetailCapital) {
      if (kHanApart && is_han(code_point)) return false;
      return (detail & 3) == kClassLetter || detail == kDetailMark;
    }
    i += length;
  }
  return false;
}

// Turns the byte classes of one document, 64 bytes at a time in order, into masks of piece starts.
template <class Rules>
class Cl100kPattern {
  static constexpr bool kHasCase = Rules::kWords == Words::by_case;

 public:
  using Classes = std::conditional_t<
      Rules::kHanApart, HanByteClasses,
      std::conditional_t<Rules::kWords == Words::letters, ByteClasses, DetailedByteClasses>>;
  static constexpr bool kDividesLatin = false;
  static constexpr bool kClassifiesAscii = true;

  // `classes` are those of the 64 bytes at p, `next` those of the 64 after them: `Classes`, or
  // AsciiClasses if all are ASCII. `left` bytes of the document begin at p.
  template <class Masks>
  PENSTOK_INLINE uint64_t of(const Masks& classes, const Masks& next, const uint8_t* p,
                             size_t left) {
    const uint64_t space = classes.space;
    uint64_t letter = classes.letter;
    if constexpr (Rules::kWords != Words::letters) letter |= classes.mark;
    if constexpr (Rules::kHanApart) letter &= ~classes.kana_han;
    const uint64_t inline_space = space & ~classes.newline;
    const uint64_t after_inline = inline_space << 1 | inline_;
    const uint64_t after_blank = classes.blank << 1 | blank_;
    uint64_t other = ~(letter | classes.number | space);
    if constexpr (Rules::kHanApart) other &= ~classes.kana_han;
    const Others others = find_others(other, after_blank, classes);
    uint64_t word = letter & ~others.marks;
    uint64_t first_other = others.first;
    uint64_t starts = set_next_;
    set_next_ = 0;
    if constexpr (Rules::kHanApart) {
      starts |= number_and_han_starts(classes, others.joined);
    } else {
      starts |= numbers_.starts(classes);
    }
    if constexpr (Rules::kContractions == Contractions::end_words) {
      word &= ~contracted_;
      contracted_ = 0;
      const uint64_t quotes = classes.apostrophe & first_other & (word << 1 | word_);
      if (PENSTOK_UNLIKELY(quotes)) starts |= take_contractions(quotes, word, first_other, p, left);
    }
    starts |= first_other;
    starts |= word & ~(word << 1 | word_) & ~after_inline & ~after_first(first_other, classes);
    if constexpr (kHasCase) starts |= capital_starts(word, classes, p, left);

    starts |= spaces_.starts(classes, next, others.tail, space, next.space, p, left);

    if constexpr (Rules::kContractions == Contractions::apart) {
      const uint64_t quotes = classes.apostrophe & first_other;
      if (quotes) starts |= after_contractions(quotes, p, left);
    }

    word_ = word >> 63;
    other_ = others.all >> 63;
    joined_ = others.joined >> 63;
    inline_ = inline_space >> 63;
    blank_ = classes.blank >> 63;
    tail_ = others.tail >> 63;
    return left < kMaskBytes ? starts & bits_below(left) : starts;
  }

 private:
  struct Others {
    uint64_t all;     // without slashes that belong to a tail
    uint64_t first;   // first bytes of those that begin a piece
    uint64_t joined;  // those that belong to a run after its first, or follow a blank, and marks
    uint64_t marks;   // marks that belong to others
    uint64_t tail;    // the newlines (and slashes) that belong to others
  };

  template <class Masks>
  PENSTOK_INLINE Others find_others(uint64_t other, uint64_t after_blank, const Masks& classes) {
    if constexpr (kHasCase) return find_others_and_marks(other, after_blank, classes);
    const uint64_t newline = classes.newline, after_other = other << 1 | other_;
    const uint64_t closed = newline & (after_other | tail_);
    return {other, other & ~after_other & ~after_blank, 0, 0, newline & ~(newline + closed)};
  }

  // The same if marks can belong to others, and slashes to their tails.
  template <class Masks>
  PENSTOK_INLINE Others find_others_and_marks(uint64_t other, uint64_t after_blank,
                                              const Masks& classes) {
    const uint64_t newline = classes.newline;
    const uint64_t slash = Rules::kTakesSlashes ? classes.slash : 0;
    uint64_t mark = classes.mark, han = 0;  // of Han, what can belong to others
    if constexpr (Rules::kHanApart) {
      mark &= ~classes.kana_han;
      han = classes.kana_han & ~(classes.letter | classes.number);
    }
    // Whether a slash belongs to a tail can depend on earlier ones: repeat until nothing changes.
    Others found{};
    const uint64_t all = other, closers = newline | slash;
    for (uint64_t taken = 0;; taken = found.tail & slash) {
      other = all & ~taken;
      const uint64_t after_other = other << 1 | other_;
      const uint64_t run = other | mark | han;
      const uint64_t seeds = ((other | han) & ~classes.continuation & (after_other | after_blank)) |
                             (run & joined_);
      found.all = other;
      // In ASCII all others after the first of a run are seeds.
      found.joined = std::is_same_v<Masks, AsciiClasses> ? seeds : spread(seeds, run);
      found.first = other & ~classes.continuation & ~found.joined;
      const uint64_t closed = (newline & (after_other | found.joined << 1 | joined_)) |
                              (closers & tail_);
      found.tail = spread(closed, closers);
      if (PENSTOK_LIKELY((found.tail & slash) == taken)) break;
    }
    found.marks = found.joined & mark;
    return found;
  }

  // Numbers, and runs of Han without what belongs to numbers or others.
  template <class Masks>
  PENSTOK_INLINE uint64_t number_and_han_starts(const Masks& classes, uint64_t joined) {
    uint64_t number = classes.number;
    const uint64_t starts = PENSTOK_UNLIKELY(number & classes.kana_han)
                                ? numbers_.starts_beside_han(classes, classes.kana_han, number)
                                : numbers_.starts(classes);
    const uint64_t han = classes.kana_han & ~number & ~joined;
    const uint64_t first = han & ~(han << 1 | han_);
    han_ = han >> 63;
    return starts | first;
  }

  // Where capitals begin a piece inside a word.
  template <class Masks>
  PENSTOK_INLINE uint64_t capital_starts(uint64_t word, const Masks& classes, const uint8_t* p,
                                         size_t left) {
    const uint64_t rest = word & ~classes.capital;  // small, without case, marks
    const uint64_t after_small = spread(rest & (classes.small | has_small_), rest);
    const uint64_t behind =
        word & classes.capital & ~classes.continuation & (rest << 1 | rest_);
    uint64_t starts = behind & (after_small << 1 | has_small_);
    uint64_t unclear = behind & ~starts;
    if (left < kMaskBytes) unclear &= bits_below(left);
    for (; PENSTOK_UNLIKELY(unclear != 0); unclear &= unclear - 1) {
      const unsigned i = lowest_bit(unclear);
      if (!capitals_reach_small<Rules::kHanApart>(p + i, left - i)) starts |= uint64_t{1} << i;
    }
    rest_ = rest >> 63;
    has_small_ = after_small >> 63;
    return starts;
  }

  // Contractions that end a word: their letters are not part of one, and what follows begins a
  // piece. One that follows another one's letters is not a contraction.
  PENSTOK_INLINE uint64_t take_contractions(uint64_t quotes, uint64_t& word, uint64_t& first_other,
                                            const uint8_t* p, size_t left) {
    uint64_t starts = 0;
    for (; quotes != 0; quotes &= quotes - 1) {
      const unsigned i = lowest_bit(quotes);
      if (!((word << 1 | word_) >> i & 1)) continue;
      const unsigned length = any_case_contraction_length(p + i, left - i);
      if (length == 0) continue;
      first_other &= ~(uint64_t{1} << i);
      uint64_t here = 0;
      mark(here, contracted_, i, length);
      word &= ~here;
      starts |= start_at(i + length);
    }
    return starts;
  }

  // The bit of a start up to 64 bytes after these 64 bytes begin, or remembers it for the next.
  PENSTOK_INLINE uint64_t start_at(unsigned i) {
    if (i < 64) return uint64_t{1} << i;
    set_next_ |= uint64_t{1} << (i - 64);
    return 0;
  }

  // The positions after the first characters of runs of others. Adding a bit to the continuation
  // bytes that follow it carries it past them.
  template <class Masks>
  PENSTOK_INLINE uint64_t after_first(uint64_t first_other, const Masks& classes) {
    const uint64_t second = first_other << 1 | first_;
    const uint64_t sum = second + classes.continuation;
    first_ = first_other >> 63 | (sum < second ? 1 : 0);
    return sum & ~classes.continuation;
  }

  PENSTOK_INLINE uint64_t after_contractions(uint64_t quotes, const uint8_t* p, size_t left) {
    uint64_t starts = 0;
    for (; quotes != 0; quotes &= quotes - 1) {
      const unsigned i = lowest_bit(quotes);
      const unsigned length = any_case_contraction_length(p + i, left - i);
      if (length == 0) continue;
      starts |= start_at(i + length);
    }
    return starts;
  }

  NumberGroups<Rules::kMostDigits> numbers_;
  LineSpaces spaces_;
  // What the byte before the 64 is, as bit 0.
  uint64_t word_ = 0, other_ = 0, inline_ = 0, blank_ = 0;
  uint64_t joined_ = 0, tail_ = 0;     // as in Others
  uint64_t han_ = 0;                   // part of a run of Han
  uint64_t rest_ = 0, has_small_ = 0;  // a letter but no capital; after a small letter in its run
  uint64_t first_ = 0;                 // the first of a run of others, or the beginning of it
  uint64_t set_next_ = 0;              // where contractions end in the next 64 bytes
  uint64_t contracted_ = 0;            // their letters there
};

}  // namespace penstok::kernel::PENSTOK_ISA
