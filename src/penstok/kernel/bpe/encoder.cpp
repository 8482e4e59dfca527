#include "bpe/encoder.hpp"

#include <algorithm>
#include <stdexcept>

namespace penstok::kernel {
namespace {

// Positions inside a text are 32 bits wide.
constexpr size_t kLargestText = (size_t{1} << 32) - 4096;

template <class Id>
Variant<Id> variant_for(Isa isa, PatternName pattern) {
  switch (isa) {
#if defined(PENSTOK_WITH_AVX512)
    case Isa::avx512:
      return avx512::variant<Id>(pattern);
#endif
#if defined(PENSTOK_WITH_AVX2)
    case Isa::avx2:
      return avx2::variant<Id>(pattern);
#endif
#if defined(PENSTOK_WITH_NEON)
    case Isa::neon:
      return neon::variant<Id>(pattern);
#endif
    default:
      return portable::variant<Id>(pattern);
  }
}

void check_documents(const DocumentParts& documents, size_t size) {
  int64_t at = 0;
  for (size_t i = 0; i < documents.count; ++i) {
    if (documents.starts[i] < at || documents.ends[i] < documents.starts[i]) {
      throw std::invalid_argument("document " + std::to_string(i) + " begins before " +
                                  std::to_string(at) + " or ends before it begins");
    }
    at = documents.ends[i];
  }
  if (at > static_cast<int64_t>(size)) {
    throw std::invalid_argument("the last document ends at " + std::to_string(at) +
                                ", after the text's " + std::to_string(size) + " bytes");
  }
}

size_t bytes_spanned(const DocumentParts& documents) {
  if (documents.count == 0) return 0;
  return static_cast<size_t>(documents.ends[documents.count - 1] - documents.starts[0]);
}

}  // namespace

Encoder::Encoder(std::vector<Token> tokens, const EncoderOptions& options)
    : options_(options), isa_(choose_isa(options.isa)) {
  Vocabulary vocabulary(std::move(tokens));
  output_ids_ = OutputIds(std::move(options_.output_ids), vocabulary);
  if (output_ids_.is_empty() != (options.pattern != PatternName::sentencepiece)) {
    throw std::invalid_argument("output ids belong to a tokenizer without a pattern");
  }
  if (!output_ids_.is_empty()) {
    borders_.emplace(vocabulary.tokens());
    spaced_text_.emplace(options.adds_space);
  }
  const uint32_t max_id = std::max({vocabulary.max_id(), options.eot_id, options.bos_id.value_or(0),
                                    output_ids_.max_id()});
  if (max_id < kRedo<uint16_t>) {
    engine_ = make_engine<uint16_t>(vocabulary);
  } else {
    engine_ = make_engine<uint32_t>(vocabulary);
  }
  tokens_ = std::move(vocabulary).take_tokens();
}

void Encoder::restart(EotMode eot_mode, size_t table_bytes) {
  options_.eot_mode = eot_mode;
  options_.table_bytes = table_bytes;
  std::visit(
      [&](auto& engine) {
        engine.state->pieces = decltype(engine.state->pieces)(table_bytes);
        engine.state->hot = decltype(engine.state->hot)();
        engine.variant.preload(*engine.state, tokens_.data(), tokens_.size());
      },
      engine_);
}

template <class Id>
Encoder::Engine<Id> Encoder::make_engine(const Vocabulary& vocabulary) const {
  Engine<Id> engine{std::make_unique<State<Id>>(vocabulary, options_.table_bytes),
                    variant_for<Id>(isa_, options_.pattern)};
  engine.variant.preload(*engine.state, vocabulary.tokens().data(), vocabulary.tokens().size());
  return engine;
}

size_t Encoder::id_bytes() const {
  return std::holds_alternative<Engine<uint16_t>>(engine_) ? 2 : 4;
}

uint32_t Encoder::max_id() const {
  return tokens_.back().id;
}

std::string_view Encoder::find_token(uint32_t id) const {
  const auto found =
      std::lower_bound(tokens_.begin(), tokens_.end(), id,
                       [](const Token& token, uint32_t wanted) { return token.id < wanted; });
  return found != tokens_.end() && found->id == id ? std::string_view(found->bytes)
                                                   : std::string_view();
}

bool Encoder::is_free_junction(uint8_t left, uint8_t right) const {
  return std::visit(
      [&](const auto& engine) { return engine.state->junctions.may_divide(left, right); },
      engine_);
}

Outcome Encoder::encode(const uint8_t* text, size_t size, DocumentParts documents, void* out,
                        size_t room) {
  check_documents(documents, size);
  const size_t needed = room_for(bytes_spanned(documents), documents.count);
  if (room < needed) {
    throw std::invalid_argument("out is too small: it holds " + std::to_string(room) + " ids, " +
                                std::to_string(needed) + " are needed");
  }
  if (spaced_text_) spaced_text_->prepare(text, size, documents);
  if (size > kLargestText) {
    throw std::invalid_argument("at most 4 GiB of text can be encoded at once");
  }
  Outcome outcome = std::visit(
      [&](auto& engine) {
        using Id = std::remove_pointer_t<decltype(engine.state->characters()->ids + 0)>;
        using PlainId = std::remove_const_t<Id>;
        const Request<PlainId> request{text,
                                       size,
                                       documents,
                                       options_.eot_mode,
                                       static_cast<PlainId>(options_.eot_id),
                                       static_cast<PlainId>(options_.bos_id.value_or(0)),
                                       options_.bos_id.has_value(),
                                       static_cast<PlainId*>(out),
                                       borders_ ? &*borders_ : nullptr};
        return engine.variant.encode(*engine.state, request);
      },
      engine_);
  if (spaced_text_) {
    spaced_text_->trim();
    outcome.num_ids = write_output_ids(out, outcome.num_ids);
  }
  return outcome;
}

size_t Encoder::write_output_ids(void* ids, size_t count) const {
  if (id_bytes() == 2) return output_ids_.replace(static_cast<uint16_t*>(ids), count);
  return output_ids_.replace(static_cast<uint32_t*>(ids), count);
}

}  // namespace penstok::kernel
