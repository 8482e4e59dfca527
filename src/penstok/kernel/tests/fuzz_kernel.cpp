// Compares every instruction set with the reference on random text, in buffers of exactly the size
// the kernel may touch; meant to be built with PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_kernel gpt2.tiktoken [--rounds N] [--seed N] [text files ...]
//
// Half as many rounds use random vocabularies, most of whose tokens no merges produce.
// Text files are encoded whole with every instruction set, and the ids compared with each other.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>

#include "bpe/encoder.hpp"
#include "tests/fuzz_main.hpp"
#include "tests/fuzz_texts.hpp"
#include "tests/reference.hpp"

namespace penstok::kernel {
namespace {

constexpr uint32_t kEot = 50256;
constexpr PatternName kPatterns[] = {
    PatternName::gpt2,   PatternName::starcoder, PatternName::cl100k,
    PatternName::nanochat, PatternName::qwen2,   PatternName::qwen35,
    PatternName::o200k,  PatternName::tekken,    PatternName::kimi,
    PatternName::deepseek, PatternName::bloom};
// All but the last, which is not a pattern: fuzz_characters.cpp has that.
static_assert(std::size(kPatterns) + 1 == std::size(kPatternNames), "every pattern is compared");

std::string decode_base64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0, count = 0;
  for (char c : text) {
    const char* alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char* found = std::strchr(alphabet, c);
    if (c == '=' || found == nullptr) break;
    bits = bits << 6 | static_cast<uint32_t>(found - alphabet);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 255));
    }
  }
  return bytes;
}

std::vector<Token> read_ranks(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<Token> tokens;
  std::string token;
  uint32_t id;
  while (file >> token >> id) tokens.push_back({decode_base64(token), id});
  return tokens;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Subject {
  std::string name;
  PatternName pattern;
  EotMode eot_mode;
  uint32_t eot_id;
  Encoder encoder;
};

std::vector<std::unique_ptr<Subject>> make_subjects(const std::vector<Token>& tokens) {
  std::vector<std::unique_ptr<Subject>> subjects;
  for (Isa isa : available_isas()) {
    const std::string name = name_of(isa);
    const auto add = [&](EotMode mode, size_t table_bytes, uint32_t eot, PatternName pattern) {
      const std::string full = name + ", table of " + std::to_string(table_bytes) +
                               ", end of text " + std::to_string(eot) + ", pattern " +
                               kPatternNames[static_cast<size_t>(pattern)];
      subjects.emplace_back(
          new Subject{full, pattern, mode, eot,
                      Encoder(tokens, {eot, mode, table_bytes, name, pattern})});
    };
    for (PatternName pattern : kPatterns) {
      add(EotMode::append, size_t{4} << 20, kEot, pattern);
      add(EotMode::prepend, size_t{1} << 10, kEot, pattern);  // constant eviction
      add(EotMode::none, size_t{1} << 14, 70000, pattern);    // ids of 32 bits
    }
  }
  return subjects;
}

struct Expected {
  size_t malformed_document = Outcome::kAllWellFormed;
  std::vector<std::vector<uint32_t>> documents;

  std::vector<uint32_t> with_eot(const Block& block, EotMode mode, uint32_t eot) const {
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < documents.size(); ++i) {
      if (mode == EotMode::prepend && block.begins[i]) ids.push_back(eot);
      ids.insert(ids.end(), documents[i].begin(), documents[i].end());
      if (mode == EotMode::append && block.closes[i]) ids.push_back(eot);
    }
    return ids;
  }
};

Expected expect(const reference::Ranks& ranks, const Block& block, PatternName pattern) {
  Expected expected;
  for (size_t i = 0; i < block.documents.size(); ++i) {
    if (!reference::is_utf8(block.documents[i])) {
      expected.malformed_document = i;
      return expected;
    }
    expected.documents.push_back(reference::encode(ranks, block.documents[i], pattern));
  }
  return expected;
}

bool agrees(Subject& subject, const Block& block, const Expected& expected) {
  const DocumentParts documents{block.starts.data(), block.ends.data(), block.begins, block.closes,
                                block.starts.size()};
  std::vector<uint32_t> ids;
  const Outcome outcome = encode(subject.encoder, block.text, documents, ids);
  if (outcome.malformed_document != expected.malformed_document) return false;
  if (expected.malformed_document != Outcome::kAllWellFormed) return true;
  return ids == expected.with_eot(block, subject.eot_mode, subject.eot_id);
}

bool fuzz(const std::vector<Token>& tokens, size_t rounds, uint64_t seed) {
  reference::Ranks ranks;
  for (const Token& token : tokens) ranks[token.bytes] = token.id;
  const auto subjects = make_subjects(tokens);
  size_t bytes = 0, malformed = 0;
  for (size_t round = 0; round < rounds; ++round) {
    Texts texts(tokens, seed + round);
    const Block block = make_block(texts);
    std::vector<Expected> expected;  // by pattern
    for (PatternName pattern : kPatterns) expected.push_back(expect(ranks, block, pattern));
    bytes += block.text.size();
    malformed += expected[0].malformed_document != Outcome::kAllWellFormed;
    for (const auto& subject : subjects) {
      if (agrees(*subject, block, expected[static_cast<size_t>(subject->pattern)])) continue;
      std::printf("DIFFERS: seed %llu, %s\n", static_cast<unsigned long long>(seed + round),
                  subject->name.c_str());
      return false;
    }
  }
  std::printf("%zu blocks, %zu bytes, %zu malformed, %zu encoders: all agree\n", rounds, bytes,
              malformed, subjects.size());
  return true;
}

// Random strings over a few characters in random order, so that merges produce few of them, and
// many of those contain merges of higher rank.
std::vector<Token> random_tokens(uint64_t seed) {
  static const char* const kCharacters[] = {"a",  "b",      "c",      " ",     "=",
                                            "\n", "\u4e00", "\u4e01", "\u0430"};
  std::mt19937_64 random(seed);
  std::set<std::string> found;
  const size_t wanted = 20 + random() % 3000;
  for (size_t tries = 0; tries < 4 * wanted && found.size() < wanted; ++tries) {
    const size_t first = random() % std::size(kCharacters);
    const size_t kinds = 1 + random() % 3, length = 2 + random() % (random() % 8 == 0 ? 60 : 8);
    std::string bytes;
    for (size_t i = 0; i < length; ++i) {
      bytes += kCharacters[(first + random() % kinds) % std::size(kCharacters)];
    }
    found.insert(bytes.substr(0, random() % 4 == 0 ? bytes.size() - 1 : bytes.size()));
  }
  for (size_t byte = 0; byte < 256; ++byte) found.insert(std::string(1, static_cast<char>(byte)));
  std::vector<std::string> shuffled(found.begin(), found.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  std::vector<Token> tokens;
  for (size_t i = 0; i < shuffled.size(); ++i) {
    tokens.push_back({shuffled[i], static_cast<uint32_t>(i)});
  }
  return tokens;
}

bool compare_file(const std::vector<Token>& tokens, const std::string& path) {
  const std::string text = read_file(path);
  const int64_t start = 0, end = static_cast<int64_t>(text.size());
  const bool whole = true;
  std::vector<uint32_t> first;
  for (Isa isa : available_isas()) {
    for (size_t table_bytes : {kDefaultTableBytes, size_t{4096}}) {
      Encoder encoder(tokens, {kEot, EotMode::append, table_bytes, name_of(isa)});
      std::vector<uint32_t> ids;
      const Outcome outcome = encode(encoder, text, {&start, &end, &whole, &whole, 1}, ids);
      if (first.empty()) first = ids;
      const bool same = outcome.malformed_document == Outcome::kAllWellFormed && ids == first;
      std::printf("%s: %s, table of %zu: %zu ids, %s\n", path.c_str(), name_of(isa), table_bytes,
                  ids.size(), same ? "same" : "DIFFERS");
      if (!same) return false;
    }
  }
  return true;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw std::runtime_error("which .tiktoken file?");
  const std::vector<Token> tokens = read_ranks(arguments[0]);
  size_t rounds = 2000;
  uint64_t seed = 1;
  bool good = true;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--rounds" && i + 1 < arguments.size()) {
      rounds = std::stoull(arguments[++i]);
    } else if (arguments[i] == "--seed" && i + 1 < arguments.size()) {
      seed = std::stoull(arguments[++i]);
    } else {
      good = compare_file(tokens, arguments[i]) && good;
    }
  }
  good = fuzz(tokens, rounds, seed) && good;
  for (uint64_t number = 0; number < 4; ++number) {
    good = fuzz(random_tokens(seed + number), rounds / 8, seed) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_main(argc, argv, penstok::kernel::run);
}
