// Divides Latin text (LatinDivision) with AVX2. Included by avx2.hpp, after `Bytes64`.
#pragma once

#include "simd/latin_text.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// The kinds of bytes: bit 7 for white space, bit 6 for the blank, 0 for anything else.
constexpr HalfByteTables make_kind_tables() {
  constexpr uint8_t kLetter4 = 0x20, kLetter5 = 0x10, kNumber = 0x04, kSpace = 0x80;
  HalfByteTables tables{};
  for (unsigned low = 0; low < 16; ++low) {
    tables.low[low] =
        static_cast<uint8_t>((low >= 1 ? kLetter4 : 0) | (low <= 10 ? kLetter5 : 0) |
                             (low <= 9 ? kNumber : 0) | (low >= 9 && low <= 13 ? kSpace : 0));
  }
  tables.high[0] = kSpace;
  tables.high[3] = kNumber;
  tables.high[4] = tables.high[6] = kLetter4;
  tables.high[5] = tables.high[7] = kLetter5;
  return tables;
}
constexpr HalfByteTables kKindTables = make_kind_tables();

// Goes through a text in steps of 64 bytes, one step ahead.
class LatinDivider {
 public:
  // The 32 bytes before p and the 64 from p on must be readable, and those from p - 1 on be ASCII.
  PENSTOK_INLINE explicit LatinDivider(const uint8_t* p)
      : low_(kinds(load256(p))),
        high_(kinds(load256(p + 32))),
        before_(join(kinds(load256(p - 32)), low_)) {}

  // Divides the 64 bytes at p; false if they and the one after them are not Latin.
  PENSTOK_INLINE bool divide(const uint8_t* p, LatinDivision& division) {
    if (is_other_script_) return false;
    const Bytes64 next(p + 64);
    __m256i next_low = kinds(next.low), next_high = kinds(next.high);
    if (const uint64_t high = next.top_bits(); high != 0) {
      is_other_script_ = !is_latin(next, high);
      if (is_other_script_ && (high & 1)) return false;
      next_low = _mm256_or_si256(next_low, high_letters(p + 64));
      next_high = _mm256_or_si256(next_high, high_letters(p + 96));
    }
    const __m256i middle = join(low_, high_), after = join(high_, next_low);
    const __m256i previous0 = _mm256_alignr_epi8(low_, before_, 15);
    const __m256i previous1 = _mm256_alignr_epi8(high_, middle, 15);
    const Bytes64 inside(is_inside(low_, previous0, _mm256_alignr_epi8(middle, low_, 1)),
                         is_inside(high_, previous1, _mm256_alignr_epi8(after, high_, 1)));
    division.starts = ~inside.top_bits();
    division.quotes = 0;
    const __m256i quote = bytes256('\'');
    const __m256i quotes0 = _mm256_cmpeq_epi8(load256(p), quote);
    const __m256i quotes1 = _mm256_cmpeq_epi8(load256(p + 32), quote);
    if (_mm256_movemask_epi8(_mm256_or_si256(quotes0, quotes1)) != 0) {
      division.quotes = Bytes64(quotes0, quotes1).top_bits() &
                        ~Bytes64(follows_other(previous0), follows_other(previous1)).top_bits();
    }
    low_ = next_low;
    high_ = next_high;
    before_ = after;
    return true;
  }

 private:
  static constexpr uint8_t kLetter = 0x10;

  PENSTOK_INLINE static __m256i table(const uint8_t* half) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(half)));
  }
  PENSTOK_INLINE static __m256i kinds(__m256i v) {
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(v, 4), bytes256(0x0F));
    // The lower half of a byte is its index into 16 entries if its top bit is 0.
    const __m256i kind = _mm256_and_si256(_mm256_shuffle_epi8(table(kKindTables.low), v),
                                          _mm256_shuffle_epi8(table(kKindTables.high), upper));
    // One number for all letters; white space is negative.
    return _mm256_or_si256(_mm256_min_epi8(kind, bytes256(kLetter)),
                           _mm256_cmpeq_epi8(v, bytes256(' ')));
  }
  // The kind of the letters of two bytes in Latin text, 0 elsewhere.
  PENSTOK_INLINE static __m256i high_letters(const uint8_t* p) {
    const auto is_lead = [](__m256i v) {
      const __m256i number = _mm256_sub_epi8(v, bytes256(kFirstLetterLead));
      const __m256i last = bytes256(kLastLetterLead - kFirstLetterLead);
      return _mm256_cmpeq_epi8(_mm256_min_epu8(number, last), number);
    };
    const __m256i is_letter = _mm256_or_si256(is_lead(load256(p)), is_lead(load256(p - 1)));
    return _mm256_and_si256(is_letter, bytes256(kLetter));
  }
  // The second half of a and the first half of b.
  PENSTOK_INLINE static __m256i join(__m256i a, __m256i b) {
    return _mm256_permute2x128_si256(a, b, 0x21);
  }
  // Bit 7 of each byte: no piece begins here.
  PENSTOK_INLINE static __m256i is_inside(__m256i kind, __m256i previous, __m256i next) {
    const __m256i word =
        _mm256_or_si256(_mm256_cmpeq_epi8(kind, previous), _mm256_slli_epi16(previous, 1));
    return _mm256_blendv_epi8(word, _mm256_and_si256(previous, next), kind);
  }
  PENSTOK_INLINE static __m256i follows_other(__m256i previous) {  // or a blank; bit 7
    return _mm256_or_si256(_mm256_cmpeq_epi8(previous, _mm256_setzero_si256()),
                           _mm256_slli_epi16(previous, 1));
  }

  __m256i low_, high_;  // the kinds of the 64 bytes of the next step
  __m256i before_;      // those of the 16 before and of the first 16
  bool is_other_script_ = false;  // those bytes are not Latin
};

}  // namespace penstok::kernel::PENSTOK_ISA
