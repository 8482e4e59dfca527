// Divides ASCII text (AsciiDivision) with AVX-512. Included by avx512.hpp.
#pragma once

namespace penstok::kernel::PENSTOK_ISA {

// The kinds of bytes: bit 7 for white space, bit 6 for the blank, 0 for anything else.
struct ByteKinds {
  alignas(64) uint8_t kind[128];
};
constexpr ByteKinds make_byte_kinds() {
  ByteKinds kinds{};
  for (unsigned c = 0; c < 128; ++c) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') kinds.kind[c] = 1;
    if (c >= '0' && c <= '9') kinds.kind[c] = 2;
    if (c >= 9 && c <= 13) kinds.kind[c] = 0x80;
    if (c == ' ') kinds.kind[c] = 0xC0;
  }
  return kinds;
}
constexpr ByteKinds kByteKinds = make_byte_kinds();

class AsciiDivider {
 public:
  PENSTOK_INLINE explicit AsciiDivider(const uint8_t*) {}

  // Divides the 64 bytes at p; false if they and the one after them are not ASCII. The one before
  // them must be.
  PENSTOK_INLINE bool divide(const uint8_t* p, AsciiDivision& division) {
    const __m512i text = load(p), shifted = load(p + 1);
    if (_mm512_movepi8_mask(_mm512_or_si512(text, shifted)) != 0) return false;
    const __m512i kind = kinds(text), previous = kinds(load(p - 1)), next = kinds(shifted);
    const uint64_t space = _mm512_movepi8_mask(kind);
    const uint64_t inside_space = _mm512_movepi8_mask(_mm512_and_si512(previous, next));
    const uint64_t after_blank = _mm512_test_epi8_mask(previous, bytes512(0x40));
    const uint64_t inside_word = _mm512_cmpeq_epi8_mask(kind, previous) | after_blank;
    division.starts = ~((space & inside_space) | (~space & inside_word));
    division.quotes = _mm512_cmpeq_epi8_mask(text, bytes512('\''));
    if (division.quotes != 0) {
      division.quotes &= ~(after_blank | _mm512_cmpeq_epi8_mask(previous, _mm512_setzero_si512()));
    }
    return true;
  }

 private:
  PENSTOK_INLINE static __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  PENSTOK_INLINE static __m512i kinds(__m512i v) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(kByteKinds.kind), v,
                                    _mm512_load_si512(kByteKinds.kind + 64));
  }
};

}  // namespace penstok::kernel::PENSTOK_ISA
