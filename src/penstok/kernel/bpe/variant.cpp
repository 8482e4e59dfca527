// Compiled once per instruction set, with that set's compiler flags; see simd.hpp.
#include "bpe/variant.hpp"

#include "bpe/document_encoder.hpp"
#include "bpe/piece_cache.hpp"
#include "simd/simd.hpp"
#include "text/pattern_bloom.hpp"
#include "text/pattern_borders.hpp"
#include "text/pattern_cl100k.hpp"
#include "text/pattern_deepseek.hpp"
#include "text/pattern_gpt2.hpp"

namespace penstok::kernel::PENSTOK_ISA {
namespace {

// Fills the hot table and the piece table with the vocabulary, as far as it fits.
template <class Id>
void preload(State<Id>& state, const Token* tokens, size_t count) {
  reserve_key_of_nuls(state.pieces);
  for (size_t i = 0; i < count; ++i) {
    const char* bytes = tokens[i].bytes.data();
    const size_t length = tokens[i].bytes.size();
    // 0xFF pads keys; a token that contains it is never looked up.
    if (length > kShortPiece || std::memchr(bytes, 0xFF, length) != nullptr) continue;
    uint8_t padded[kShortPiece] = {};
    std::memcpy(padded, bytes, length);
    if (state.whole_tokens.contains(padded, length)) continue;
    const uint32_t hot_bits = HotTable::bits_of(static_cast<uint32_t>(length));
    const uint64_t mixed = HotTable::mix(padded, hot_bits);
    if (hot_bits != 0 && state.hot.is_free(mixed)) state.hot.store(mixed, tokens[i].id);
    const PieceKey key = make_key(padded, length);
    const uint32_t line_number = hash_key(key, state.pieces.short_bits);
    if (state.pieces.lines()[line_number].values[1].count != 0) continue;
    const Id ids[PieceValue<Id>::kInline + 1] = {static_cast<Id>(tokens[i].id)};
    store_short(state.pieces, line_number, key, short_value(ids, 1));
  }
}

template <class Id, class Pattern>
Outcome encode(State<Id>& state, const Request<Id>& request) {
  DocumentEncoder<Id, Pattern> encoder(state, request);
  const Outcome outcome = encoder.encode();
  state.merge_workspace.trim();
  state.tail_workspace.trim();
  return outcome;
}

}  // namespace

template <class Id>
Variant<Id> variant(PatternName pattern) {
  switch (pattern) {
    case PatternName::cl100k:
      return {preload<Id>, encode<Id, Cl100kPattern<Cl100kRules>>};
    case PatternName::nanochat:
      return {preload<Id>, encode<Id, Cl100kPattern<NanochatRules>>};
    case PatternName::qwen2:
      return {preload<Id>, encode<Id, Cl100kPattern<Qwen2Rules>>};
    case PatternName::qwen35:
      return {preload<Id>, encode<Id, Cl100kPattern<Qwen35Rules>>};
    case PatternName::o200k:
      return {preload<Id>, encode<Id, Cl100kPattern<O200kRules>>};
    case PatternName::tekken:
      return {preload<Id>, encode<Id, Cl100kPattern<TekkenRules>>};
    case PatternName::kimi:
      return {preload<Id>, encode<Id, Cl100kPattern<KimiRules>>};
    case PatternName::deepseek:
      return {preload<Id>, encode<Id, DeepSeekPattern>};
    case PatternName::bloom:
      return {preload<Id>, encode<Id, BloomPattern>};
    case PatternName::starcoder:
      return {preload<Id>, encode<Id, Gpt2Pattern<true>>};
    case PatternName::sentencepiece:
      return {preload<Id>, encode<Id, BorderPattern>};
    default:
      return {preload<Id>, encode<Id, Gpt2Pattern<false>>};
  }
}

template Variant<uint16_t> variant(PatternName pattern);
template Variant<uint32_t> variant(PatternName pattern);

}  // namespace penstok::kernel::PENSTOK_ISA
