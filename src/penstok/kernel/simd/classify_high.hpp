// Classifies non-ASCII bytes, for instruction sets with vectors. Included after `Bytes64` and
// `look_up_third`.
#pragma once

namespace penstok::kernel::PENSTOK_ISA {

// Some mixed lead bytes have only letters for a range of second bytes, which need no look-up. These
// are the common ones: Latin-1, Hangul, and Han.
PENSTOK_INLINE void refine_mixed(const Bytes64& lead, const uint8_t* p, HighMasks& masks) {
  const Bytes64 second(p + 1);
  const uint64_t latin = lead.equal(0xC3) & ~second.equal(0x97) & ~second.equal(0xB7);
  const uint64_t hangul =
      (lead.equal(0xEA) & second.at_least(0xB0)) | (lead.equal(0xED) & second.at_most(0x9D));
  const uint64_t han = lead.equal(0xE4) & ~second.equal(0xB7);  // E4 B7: also hexagrams
  masks.letter2 |= latin;
  masks.letter3 |= hangul | han;
  masks.mixed &= ~(latin | hangul | han);
}

// `here` are the first bytes of the characters of a page.
PENSTOK_INLINE void refine_page(const LetterPage& page, uint64_t here, const Bytes64& third,
                                HighMasks& masks) {
  const ThirdMasks kinds = look_up_third(page, third);
  masks.letter3 |= here & kinds.letter;
  masks.mixed &= ~(here & (kinds.letter | kinds.neither));
}

// What is still mixed after `refine_mixed`. Which script 64 bytes are in is predictable, and a
// branch each; whether they contain punctuation is not, and looking it up for nothing is faster
// than a wrong prediction.
PENSTOK_INLINE void refine_by_page(const Bytes64& lead, const uint8_t* p, HighMasks& masks) {
  const Bytes64 second(p + 1), third(p + 2);
  const auto refine_script = [&](uint64_t leads, const auto& pages)
                                 __attribute__((always_inline)) {
    for (const LetterPage& page : pages) {
      const uint64_t here = leads & second.equal(page.second);
      if (here != 0) refine_page(page, here, third, masks);
    }
  };
  const auto refine_punctuation = [&](uint64_t leads, const LetterPage& page)
                                      __attribute__((always_inline)) {
    refine_page(page, leads & second.equal(page.second), third, masks);
  };
  const uint64_t indic = masks.mixed & lead.equal(0xE0);
  const uint64_t general = masks.mixed & lead.equal(0xE2);
  const uint64_t kana = masks.mixed & lead.equal(0xE3);
  const uint64_t full_width = masks.mixed & lead.equal(0xEF);
  if (indic != 0) refine_script(indic, kThaiAndDevanagari);
  if (general != 0) refine_punctuation(general, kGeneralPunctuation);
  if ((kana | full_width) != 0) {
    refine_punctuation(kana, kEastAsianPunctuation);
    refine_punctuation(full_width, kFullWidthForms);
    refine_script(kana, kKana);
  }
}

PENSTOK_INLINE HighMasks classify_high(const uint8_t* p, uint64_t high) {
  const Bytes64 v(p);
  HighMasks masks;
  masks.lead = high & v.bits<6>();
  masks.lead3 = masks.lead & v.bits<5>();
  masks.lead4 = masks.lead3 & v.bits<4>();
  masks.malformed = masks.lead & (v.at_least(0xF5) | v.at_most(0xC1));
  find_lead_kinds(v, masks);
  if (masks.mixed) refine_mixed(v, p, masks);
  if (masks.mixed) refine_by_page(v, p, masks);
  return masks;
}

}  // namespace penstok::kernel::PENSTOK_ISA
