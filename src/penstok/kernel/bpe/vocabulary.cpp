#include "bpe/vocabulary.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>

namespace penstok::kernel {
namespace {

// Grows while the merges are being derived, which the perfect hash cannot. A slot is one number:
// the two ids and the merged one, of 21 bits each, and a bit that no empty slot has.
class GrowingPairMap {
 public:
  explicit GrowingPairMap(size_t merges) {
    while ((size_t{1} << bits_) < merges * 2) ++bits_;
    slots_.resize(size_t{1} << bits_);
  }

  uint32_t find(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = hash(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] >> kIdBits == key) return static_cast<uint32_t>(slots_[at]) & kMaxId;
      if (slots_[at] == 0) return kNoMerge;
    }
  }

  void add(const Merge& merge) {
    const uint64_t key = key_of(merge.left, merge.right);
    size_t at = hash(key);
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = key << kIdBits | merge.merged;
  }

 private:
  static uint64_t key_of(uint32_t left, uint32_t right) {
    return uint64_t{1} << 2 * kIdBits | uint64_t{left} << kIdBits | right;
  }
  size_t hash(uint64_t key) const {
    key ^= key >> kIdBits;
    return key * 0x9E3779B97F4A7C15ull >> (64 - bits_);
  }

  unsigned bits_ = 4;
  std::vector<uint64_t> slots_;
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

// Merges the bytes of one token, with the merges of shorter ones, until two parts remain or no
// merge applies.
class TokenMerger {
 public:
  TokenMerger(const GrowingPairMap& known, const uint32_t (&byte_ids)[256])
      : known_(known), byte_ids_(byte_ids) {}

  void merge_down_to_two(const std::string& bytes) {
    start_with(bytes);
    if (parts_.size() > kMostWithoutHeap) return merge_with_heap();
    while (parts_.size() > 2) {
      const auto lowest = std::min_element(ranks_.begin(), ranks_.end());
      if (*lowest == kNoMerge) return;
      merge_at(lowest - ranks_.begin());
    }
  }

  const std::vector<uint32_t>& parts() const { return parts_; }

 private:
  // Finding the lowest rank takes as many steps as there are parts: too many for a token of
  // thousands of bytes.
  static constexpr size_t kMostWithoutHeap = 64;

  struct Candidate {  // a pair that had this rank; the leftmost of equals comes first
    uint32_t rank, at;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  void merge_with_heap() {
    const auto count = static_cast<uint32_t>(parts_.size());
    std::vector<uint32_t> before(count), after(count);
    std::priority_queue<Candidate> candidates;
    ranks_.push_back(kNoMerge);  // of the last part, which has no neighbour
    for (uint32_t i = 0; i < count; ++i) {
      before[i] = i - 1;
      after[i] = i + 1;
      if (ranks_[i] != kNoMerge) candidates.push({ranks_[i], i});
    }
    const auto look_up = [&](uint32_t at) {
      ranks_[at] = after[at] < count ? known_.find(parts_[at], parts_[after[at]]) : kNoMerge;
      if (ranks_[at] != kNoMerge) candidates.push({ranks_[at], at});
    };
    for (size_t left = count; left > 2 && !candidates.empty();) {
      const Candidate lowest = candidates.top();
      candidates.pop();
      if (ranks_[lowest.at] != lowest.rank) continue;  // merged meanwhile
      const uint32_t removed = after[lowest.at];
      parts_[lowest.at] = lowest.rank;
      ranks_[removed] = kNoMerge;
      after[lowest.at] = after[removed];
      if (after[removed] < count) before[after[removed]] = lowest.at;
      look_up(lowest.at);
      if (lowest.at > 0) look_up(before[lowest.at]);
      --left;
    }
    size_t num_parts = 0;
    for (uint32_t at = 0; at < count; at = after[at]) parts_[num_parts++] = parts_[at];
    parts_.resize(num_parts);
  }

  void start_with(const std::string& bytes) {
    parts_.clear();
    for (char c : bytes) parts_.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    ranks_.clear();
    if (parts_.size() < 3) return;
    for (size_t i = 0; i + 1 < parts_.size(); ++i) {
      ranks_.push_back(known_.find(parts_[i], parts_[i + 1]));
    }
  }

  void merge_at(std::ptrdiff_t at) {
    parts_[static_cast<size_t>(at)] = ranks_[static_cast<size_t>(at)];
    parts_.erase(parts_.begin() + at + 1);
    ranks_.erase(ranks_.begin() + at);
    const auto i = static_cast<size_t>(at);
    if (i < ranks_.size()) ranks_[i] = known_.find(parts_[i], parts_[i + 1]);
    if (i > 0) ranks_[i - 1] = known_.find(parts_[i - 1], parts_[i]);
  }

  const GrowingPairMap& known_;
  const uint32_t (&byte_ids_)[256];
  std::vector<uint32_t> parts_, ranks_;
};

// Tokens of two bytes and more, the shortest first: the merges that a token needs are known by
// then.
std::vector<const Token*> longer_tokens_by_length(const std::vector<Token>& tokens) {
  std::vector<const Token*> found;
  for (const Token& token : tokens) {
    if (token.bytes.size() > 1) found.push_back(&token);
  }
  std::stable_sort(found.begin(), found.end(), [](const Token* a, const Token* b) {
    return a->bytes.size() < b->bytes.size();
  });
  return found;
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
  TokenMerger merger(known, byte_ids_);
  for (const Token* token : longer_tokens_by_length(tokens_)) {
    merger.merge_down_to_two(token->bytes);
    const std::vector<uint32_t>& parts = merger.parts();
    if (parts.size() != 2) {
      whole_tokens_.push_back(*token);
      continue;
    }
    if (known.find(parts[0], parts[1]) != kNoMerge) refuse(*token, "occurs twice");
    const Merge merge{parts[0], parts[1], token->id};
    known.add(merge);
    merges_.push_back(merge);
  }
  std::sort(merges_.begin(), merges_.end(),
            [](const Merge& a, const Merge& b) { return a.merged < b.merged; });
  refuse_equal_whole_tokens();
}

std::vector<uint32_t> Vocabulary::falling_ids() const {
  std::vector<uint32_t> found;
  for (const Merge& merge : merges_) {
    if (merge.left > merge.merged) found.push_back(merge.left);
    if (merge.right > merge.merged) found.push_back(merge.right);
  }
  return found;
}

void Vocabulary::refuse_equal_whole_tokens() {
  std::sort(whole_tokens_.begin(), whole_tokens_.end(),
            [](const Token& a, const Token& b) { return a.bytes < b.bytes; });
  for (size_t i = 1; i < whole_tokens_.size(); ++i) {
    if (whole_tokens_[i].bytes == whole_tokens_[i - 1].bytes) {
      refuse(whole_tokens_[i], "occurs twice");
    }
  }
}

}  // namespace penstok::kernel
