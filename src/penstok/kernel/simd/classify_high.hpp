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
  const uint64_t han = lead.equal(0xE4) & second.at_most(0xB6);
  masks.letter2 |= latin;
  masks.letter3 |= hangul | han;
  masks.mixed &= ~(latin | hangul | han);
}

template <size_t kCount>
PENSTOK_INLINE void refine_pages(const LetterPage (&pages)[kCount], uint64_t leads,
                                 const Bytes64& second, const Bytes64& third, HighMasks& masks) {
  for (const LetterPage& page : pages) {
    const uint64_t here = leads & second.equal(page.second);
    if (here == 0) continue;
    const ThirdMasks kinds = look_up_third(page, third);
    masks.letter3 |= here & kinds.letter;
    masks.mixed &= ~(here & (kinds.letter | kinds.neither));
  }
}

// What is still mixed after `refine_mixed`.
PENSTOK_INLINE void refine_by_page(const Bytes64& lead, const uint8_t* p, HighMasks& masks) {
  const Bytes64 second(p + 1), third(p + 2);
  const auto refine = [&](unsigned byte, const auto& pages) __attribute__((always_inline)) {
    const uint64_t leads = masks.mixed & lead.equal(byte);
    if (leads != 0) refine_pages(pages, leads, second, third, masks);
  };
  refine(0xE0, kPagesE0);
  refine(0xE2, kPagesE2);
  refine(0xE3, kPagesE3);
  refine(0xEF, kPagesEF);
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
