#include "vocabulary.hpp"

#include <algorithm>
#include <stdexcept>

namespace penstock::kernel {
namespace {

// Grows while the merges are being derived, which the perfect hash cannot. Keys are never 0: pair
// numbers start at 1.
class GrowingPairMap {
 public:
  explicit GrowingPairMap(size_t merges) {
    while ((size_t{1} << bits_) < merges * 2) ++bits_;
    slots_.resize(size_t{1} << bits_);
  }

  uint32_t find(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = hash(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].merged;
      if (slots_[at].key == 0) return kNoMerge;
    }
  }

  void add(const Merge& merge) {
    const uint64_t key = key_of(merge.left, merge.right);
    size_t at = hash(key);
    while (slots_[at].key != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, merge.merged};
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t merged = 0;
  };

  static uint64_t key_of(uint32_t left, uint32_t right) {
    return (uint64_t{left} << 32 | right) + 1;
  }
  size_t hash(uint64_t key) const {
    key ^= key >> 32;
    return key * 0x9E3779B97F4A7C15ull >> (64 - bits_);
  }

  unsigned bits_ = 4;
  std::vector<Slot> slots_;
};

std::string quoted(const Token& token) {
  static const char kHex[] = "0123456789abcdef";
  std::string text = "token " + std::to_string(token.id) + " (b'";
  for (char c : token.bytes.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      text += c;
    } else {
      text += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return text + (token.bytes.size() > 40 ? "...')" : "')");
}

[[noreturn]] void refuse(const Token& token, const std::string& why) {
  throw std::invalid_argument(quoted(token) + " " + why);
}

// Merges `parts` the way BPE does, by the merges known so far, until two are left or none applies.
void merge_down_to_two(const GrowingPairMap& known, std::vector<uint32_t>& parts) {
  while (parts.size() > 2) {
    uint32_t best = kNoMerge;
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const uint32_t merged = known.find(parts[i], parts[i + 1]);
      if (merged < best) {
        best = merged;
        where = i;
      }
    }
    if (best == kNoMerge) return;
    parts[where] = best;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

}  // namespace

Vocabulary::Vocabulary(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.empty()) throw std::invalid_argument("the vocabulary has no tokens");
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.id < b.id; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].bytes.empty()) refuse(tokens_[i], "is empty");
    if (i > 0 && tokens_[i].id == tokens_[i - 1].id) refuse(tokens_[i], "shares its id");
    if (tokens_[i].id > kMaxId) refuse(tokens_[i], "has an id above 2097151");
  }
  find_byte_ids();
  derive_merges();
}

void Vocabulary::find_byte_ids() {
  bool found[256] = {};
  for (const Token& token : tokens_) {
    if (token.bytes.size() != 1) continue;
    const auto byte = static_cast<uint8_t>(token.bytes[0]);
    if (found[byte]) refuse(token, "occurs twice");
    found[byte] = true;
    byte_ids_[byte] = token.id;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!found[byte]) {
      throw std::invalid_argument("byte " + std::to_string(byte) +
                                  " is not a token: the vocabulary is not byte-level");
    }
  }
}

void Vocabulary::derive_merges() {
  GrowingPairMap known(tokens_.size());
  std::vector<uint32_t> parts;
  for (const Token& token : tokens_) {
    if (token.bytes.size() < 2) continue;
    parts.clear();
    for (char c : token.bytes) parts.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    // Only merges of lower rank are known by now: what needs a higher one is refused, which is
    // proofs 2 and 3 at once.
    merge_down_to_two(known, parts);
    if (parts.size() != 2) refuse(token, "cannot be reached by merges of lower rank");
    if (known.find(parts[0], parts[1]) != kNoMerge) refuse(token, "occurs twice");
    const Merge merge{parts[0], parts[1], token.id};
    known.add(merge);
    merges_.push_back(merge);
  }
}

}  // namespace penstock::kernel
