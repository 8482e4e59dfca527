// The two functions that exist once per instruction set.
#pragma once

#include "bpe/piece_borders.hpp"
#include "bpe/state.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// How text is divided into pieces: pattern_*.hpp.
enum class PatternName {
  gpt2,
  starcoder,
  cl100k,
  nanochat,
  qwen2,
  qwen35,
  o200k,
  tekken,
  kimi,
  deepseek,
  bloom,
  sentencepiece  // no pattern: borders that no token crosses
};
constexpr const char* kPatternNames[] = {"gpt2",   "starcoder", "cl100k",   "nanochat",
                                         "qwen2",  "qwen35",    "o200k",    "tekken",
                                         "kimi",   "deepseek",  "bloom",    "sentencepiece"};

enum class EotMode { none, append, prepend };

// Documents, or parts of long ones, in order inside a text; the text between them is skipped.
struct DocumentParts {
  const int64_t* starts;
  const int64_t* ends;
  const bool* begins;  // false: continues the previous part
  const bool* closes;  // false: continues in the next part
  size_t count;
};

template <class Id>
struct Request {
  const uint8_t* text;
  size_t size;
  DocumentParts documents;
  EotMode eot_mode;
  Id eot_id, bos_id;
  bool writes_bos;  // before every document that begins
  Id* out;  // at least Encoder::room_for ids
  const PieceBorders* borders;  // only without a pattern
};

struct Outcome {
  static constexpr size_t kAllWellFormed = ~size_t{0};
  size_t num_ids;
  size_t malformed_document;  // the first that is not UTF-8; the ids are invalid then
};

template <class Id>
struct Variant {
  void (*preload)(State<Id>& state, const Token* tokens, size_t count);
  Outcome (*encode)(State<Id>& state, const Request<Id>& request);
};

namespace portable {
template <class Id>
Variant<Id> variant(PatternName pattern);
}
namespace neon {
template <class Id>
Variant<Id> variant(PatternName pattern);
}
namespace avx2 {
template <class Id>
Variant<Id> variant(PatternName pattern);
}
namespace avx512 {
template <class Id>
Variant<Id> variant(PatternName pattern);
}

}  // namespace penstok::kernel
