// The public interface: made from a vocabulary for an instruction set, it turns text into ids.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bpe/output_ids.hpp"
#include "bpe/piece_borders.hpp"
#include "bpe/spaced_text.hpp"
#include "bpe/variant.hpp"
#include "bpe/vocabulary.hpp"
#include "simd/isa.hpp"

namespace penstok::kernel {

constexpr size_t kDefaultTableBytes = size_t{16} << 20;  // 2 MB: 350 MB/s of web text, 16 MB: 501

struct EncoderOptions {
  uint32_t eot_id;
  EotMode eot_mode = EotMode::append;
  size_t table_bytes = kDefaultTableBytes;
  std::string isa;  // empty: the fastest
  PatternName pattern = PatternName::gpt2;
  std::optional<uint32_t> bos_id = {};  // written before every document that begins
  // Only without a pattern: what is written for each id (output_ids.hpp), end of text and begin of
  // text among them, and whether documents get a space before them.
  std::vector<uint32_t> output_ids = {};
  bool adds_space = false;
};

// One encoder must not be used by two threads at once; there may be any number of encoders.
class Encoder {
 public:
  Encoder(std::vector<Token> tokens, const EncoderOptions& options);

  // Empties the caches and gives them another size; the tables of the vocabulary stay as they are.
  // So a process can prove an encoder with small caches, and its forks share those tables.
  void restart(EotMode eot_mode, size_t table_bytes);

  Isa isa() const { return isa_; }
  size_t id_bytes() const;  // 2 or 4: how ids are written to `out`

  uint32_t max_id() const;  // of all tokens

  // The bytes of a token; nothing if no token has the id.
  std::string_view find_token(uint32_t id) const;

  // May text be divided between the two bytes, that is, does no token contain them side by side?
  bool is_free_junction(uint8_t left, uint8_t right) const;

  // How many ids `out` must hold; `text_bytes` is from the first document to the end of the last.
  static size_t room_for(size_t text_bytes, size_t num_documents) {
    // End of text, begin of text, and the space before a document.
    return text_bytes + 3 * num_documents + 1 + kWriteSlack;
  }

  // Encodes every document separately. Throws std::invalid_argument if the documents are not in
  // order or `out` is too small.
  Outcome encode(const uint8_t* text, size_t size, DocumentParts documents, void* out,
                 size_t room);

 private:
  template <class Id>
  struct Engine {
    std::unique_ptr<State<Id>> state;
    Variant<Id> variant;
  };
  template <class Id>
  Engine<Id> make_engine(const Vocabulary& vocabulary) const;

  size_t write_output_ids(void* ids, size_t count) const;

  EncoderOptions options_;
  Isa isa_;
  std::vector<Token> tokens_;  // in order of id, for the caches
  OutputIds output_ids_;
  std::optional<PieceBorders> borders_;  // these two only without a pattern
  std::optional<SpacedText> spaced_text_;
  std::variant<Engine<uint16_t>, Engine<uint32_t>> engine_;
};

}  // namespace penstok::kernel
