#include "bpe/vocabulary.hpp"

#include <algorithm>
#include <numeric>
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

// The merges that are known so far: those of all shorter tokens.
class KnownMerges {
 public:
  KnownMerges(size_t tokens, const uint32_t (&byte_ids)[256])
      : byte_ids_(byte_ids), byte_pairs_(65536, kNoMerge), pairs_(tokens) {}

  uint32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }
  // Of two bytes; half of all look-ups.
  uint32_t find(uint8_t left, uint8_t right) const { return byte_pairs_[left << 8 | right]; }
  uint32_t find(uint32_t left, uint32_t right) const { return pairs_.find(left, right); }

  void add(uint8_t left, uint8_t right, uint32_t merged) {
    byte_pairs_[left << 8 | right] = merged;
  }
  void add(const Merge& merge) { pairs_.add(merge); }

 private:
  const uint32_t (&byte_ids_)[256];
  std::vector<uint32_t> byte_pairs_;
  GrowingPairMap pairs_;
};

// Merges the bytes of one token, with the merges of shorter ones, until two parts remain or no
// merge applies.
class TokenMerger {
 public:
  explicit TokenMerger(const KnownMerges& known) : known_(known) {}

  // Returns how many parts remain.
  size_t merge_down_to_two(const std::string& bytes) {
    if (bytes.size() > kMostWithoutHeap) return merge_with_heap(bytes);
    const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
    auto count = static_cast<unsigned>(bytes.size());
    for (unsigned i = 0; i < count; ++i) parts_[i] = known_.byte_id(p[i]);
    for (unsigned i = 0; i + 1 < count; ++i) ranks_[i] = known_.find(p[i], p[i + 1]);
    while (count > 2) {
      unsigned at = 0;
      uint32_t lowest = ranks_[0];
      for (unsigned i = 1; i + 1 < count; ++i) {
        at = ranks_[i] < lowest ? i : at;
        lowest = ranks_[i] < lowest ? ranks_[i] : lowest;
      }
      if (lowest == kNoMerge) break;
      --count;
      parts_[at] = lowest;
      for (unsigned i = at + 1; i < count; ++i) parts_[i] = parts_[i + 1];
      for (unsigned i = at; i + 1 < count; ++i) ranks_[i] = ranks_[i + 1];
      if (at + 1 < count) ranks_[at] = known_.find(lowest, parts_[at + 1]);
      if (at > 0) ranks_[at - 1] = known_.find(parts_[at - 1], lowest);
    }
    return count;
  }

  uint32_t left() const { return parts_[0]; }
  uint32_t right() const { return parts_[1]; }

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

  size_t merge_with_heap(const std::string& bytes) {
    const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
    const auto count = static_cast<uint32_t>(bytes.size());
    std::vector<uint32_t> parts(count), ranks(count, kNoMerge), before(count), after(count);
    std::priority_queue<Candidate> candidates;
    for (uint32_t i = 0; i < count; ++i) {
      parts[i] = known_.byte_id(p[i]);
      if (i + 1 < count) ranks[i] = known_.find(p[i], p[i + 1]);
      before[i] = i - 1;
      after[i] = i + 1;
      if (ranks[i] != kNoMerge) candidates.push({ranks[i], i});
    }
    const auto look_up = [&](uint32_t at) {
      ranks[at] = after[at] < count ? known_.find(parts[at], parts[after[at]]) : kNoMerge;
      if (ranks[at] != kNoMerge) candidates.push({ranks[at], at});
    };
    size_t left = count;
    while (left > 2 && !candidates.empty()) {
      const Candidate lowest = candidates.top();
      candidates.pop();
      if (ranks[lowest.at] != lowest.rank) continue;  // merged meanwhile
      const uint32_t removed = after[lowest.at];
      parts[lowest.at] = lowest.rank;
      ranks[removed] = kNoMerge;
      after[lowest.at] = after[removed];
      if (after[removed] < count) before[after[removed]] = lowest.at;
      look_up(lowest.at);
      if (lowest.at > 0) look_up(before[lowest.at]);
      --left;
    }
    parts_[0] = parts[0];
    parts_[1] = parts[after[0]];
    return left;
  }

  const KnownMerges& known_;
  uint32_t parts_[kMostWithoutHeap], ranks_[kMostWithoutHeap];
};

// Some vocabularies have no token for these bytes, which are in no text.
bool never_in_utf8(unsigned byte) {
  return byte == 0xC0 || byte == 0xC1 || byte > 0xF4;
}

// The numbers of the tokens of two bytes and more, the shortest first: the merges that a token
// needs are known by then. Of the longest, which are few, the order is found by comparing.
std::vector<uint32_t> longer_tokens_by_length(const std::vector<Token>& tokens) {
  constexpr size_t kMostCounted = 64;
  std::vector<uint32_t> firsts(kMostCounted + 2);
  const auto length_of = [&](uint32_t number) { return tokens[number].bytes.size(); };
  for (const Token& token : tokens) {
    if (token.bytes.size() > 1) ++firsts[std::min(token.bytes.size(), kMostCounted) + 1];
  }
  std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  std::vector<uint32_t> found(firsts.back());
  const auto longest = found.begin() + firsts[kMostCounted];
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    if (length_of(i) > 1) found[firsts[std::min(length_of(i), kMostCounted)]++] = i;
  }
  std::stable_sort(longest, found.end(),
                   [&](uint32_t a, uint32_t b) { return length_of(a) < length_of(b); });
  return found;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.empty()) throw std::invalid_argument("the vocabulary has no tokens");
  const auto is_lower = [](const Token& a, const Token& b) { return a.id < b.id; };
  if (!std::is_sorted(tokens_.begin(), tokens_.end(), is_lower)) {
    std::sort(tokens_.begin(), tokens_.end(), is_lower);
  }
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
    if (found[byte]) continue;
    if (!never_in_utf8(byte)) {
      throw std::invalid_argument("byte " + std::to_string(byte) +
                                  " is not a token: the vocabulary is not byte-level");
    }
    for (const Token& token : tokens_) {
      if (token.bytes.find(static_cast<char>(byte)) == std::string::npos) continue;
      refuse(token, "has a byte that is not a token");
    }
    byte_ids_[byte] = id_of_longest();
  }
}

uint32_t Vocabulary::id_of_longest() const {
  const auto is_shorter = [](const Token& a, const Token& b) {
    return a.bytes.size() < b.bytes.size();
  };
  return std::max_element(tokens_.begin(), tokens_.end(), is_shorter)->id;
}

void Vocabulary::derive_merges() {
  KnownMerges known(tokens_.size(), byte_ids_);
  TokenMerger merger(known);
  std::vector<Merge> merges(tokens_.size(), Merge{0, 0, kNoMerge});  // by number of the token
  for (uint32_t number : longer_tokens_by_length(tokens_)) {
    const Token& token = tokens_[number];
    if (merger.merge_down_to_two(token.bytes) != 2) {
      whole_tokens_.push_back(token);
      continue;
    }
    const Merge merge{merger.left(), merger.right(), token.id};
    if (token.bytes.size() == 2) {
      const auto left = static_cast<uint8_t>(token.bytes[0]);
      const auto right = static_cast<uint8_t>(token.bytes[1]);
      if (known.find(left, right) != kNoMerge) refuse(token, "occurs twice");
      known.add(left, right, token.id);
    } else {
      if (known.find(merge.left, merge.right) != kNoMerge) refuse(token, "occurs twice");
      known.add(merge);
    }
    merges[number] = merge;
  }
  merges_.reserve(merges.size());
  for (const Merge& merge : merges) {
    if (merge.merged != kNoMerge) merges_.push_back(merge);
  }
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
