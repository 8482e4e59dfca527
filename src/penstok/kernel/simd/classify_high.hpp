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

PENSTOK_INLINE void find_leads(const Bytes64& v, uint64_t high, HighMasks& masks) {
  masks.lead = high & v.bits<6>();
  masks.lead3 = masks.lead & v.bits<5>();
  masks.lead4 = masks.lead3 & v.bits<4>();
  masks.malformed = masks.lead & (v.at_least(0xF5) | v.at_most(0xC1));
  find_lead_kinds(v, masks);
}

PENSTOK_INLINE HighMasks classify_high(const uint8_t* p, uint64_t high) {
  const Bytes64 v(p);
  HighMasks masks;
  find_leads(v, high, masks);
  if (masks.mixed) refine_mixed(v, p, masks);
  if (masks.mixed) refine_by_page(v, p, masks);
  return masks;
}

PENSTOK_INLINE AsciiDetails find_ascii_details(const uint8_t* p) {
  const Bytes64 v(p);
  return {v.bits<5>(), v.equal('/'), v.at_most(0x1F) | v.equal(0x7F)};
}

// First bytes of the characters from 3040 to 30FF (E3 81 80 on) and from 4E00 to 9FA5 (E4 B8 80 to
// E9 BE A5).
PENSTOK_INLINE uint64_t find_kana_han(const Bytes64& lead, const uint8_t* p) {
  const Bytes64 second(p + 1), third(p + 2);
  const uint64_t kana = lead.equal(0xE3) & second.at_least(0x81) & second.at_most(0x83);
  const uint64_t last = second.at_most(0xBD) | (second.equal(0xBE) & third.at_most(0xA5));
  return kana | (lead.equal(0xE4) & second.at_least(0xB8)) |
         (lead.at_least(0xE5) & lead.at_most(0xE8)) | (lead.equal(0xE9) & last);
}

// First bytes of the characters of \p{Han} from 3400 (E3 90 80) to 9FFF, without hexagrams (E4 B7).
PENSTOK_INLINE uint64_t find_han(const uint8_t* p, uint64_t lead3) {
  const Bytes64 lead(p), second(p + 1);
  return lead3 & ((lead.equal(0xE3) & second.at_least(0x90)) |
                  (lead.equal(0xE4) & ~second.equal(0xB7)) |
                  (lead.at_least(0xE5) & lead.at_most(0xE9)));
}

PENSTOK_INLINE WideStops find_wide_stops(const uint8_t* p, const HighMasks&) {
  const Bytes64 lead(p), second(p + 1), third(p + 2);
  const uint64_t arabic = (lead.equal(0xD8) & second.equal(0x8C)) |  // 060C
                          (lead.equal(0xDB) & second.equal(0x94));   // 06D4
  const uint64_t indic = lead.equal(0xE0) & second.equal(0xA5) & third.equal(0xA4);     // 0964
  const uint64_t ellipsis = lead.equal(0xE2) & second.equal(0x80) & third.equal(0xA6);  // 2026
  const uint64_t comma_or_stop = third.equal(0x81) | third.equal(0x82);
  const uint64_t east_asian =
      (lead.equal(0xE3) & second.equal(0x80) & comma_or_stop) |    // 3001, 3002
      (lead.equal(0xEF) & second.equal(0xBC) & third.equal(0x8C));  // FF0C
  return {arabic, indic | ellipsis | east_asian};
}

PENSTOK_INLINE DetailedHighMasks classify_high_detailed(const uint8_t* p, uint64_t high) {
  const Bytes64 v(p);
  DetailedHighMasks masks;
  find_leads(v, high, masks);
  if (masks.mixed) refine_mixed(v, p, masks);
  masks.capital2 = masks.small2 = 0;
  if (masks.letter2) {
    // Letters of Latin-1 and the common ones of Cyrillic.
    const Bytes64 second(p + 1);
    const uint64_t latin = masks.letter2 & v.equal(0xC3), capital_latin = second.at_most(0x9E);
    const uint64_t d0 = v.equal(0xD0), capital_d0 = second.at_most(0xAF);
    masks.capital2 = (latin & capital_latin) | (d0 & capital_d0);
    masks.small2 = (latin & ~capital_latin) | (d0 & ~capital_d0) |
                   (v.equal(0xD1) & second.at_most(0x9F));
  }
  masks.kana_han3 = find_kana_han(v, p);
  const uint64_t known2 = masks.capital2 | masks.small2;
  // CC and F3 are the lead bytes of marks that no letter has.
  masks.mixed |= (masks.letter2 & ~known2) | v.equal(0xCC) | v.equal(0xF3);
  masks.letter2 = known2;
  return masks;
}

}  // namespace penstok::kernel::PENSTOK_ISA
