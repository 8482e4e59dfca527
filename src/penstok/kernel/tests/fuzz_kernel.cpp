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
#include "tests/reference.hpp"

namespace penstok::kernel {
namespace {

constexpr uint32_t kEot = 50256;
constexpr PatternName kPatterns[] = {
    PatternName::gpt2,   PatternName::starcoder, PatternName::cl100k,
    PatternName::nanochat, PatternName::qwen2,   PatternName::qwen35,
    PatternName::o200k,  PatternName::tekken,    PatternName::kimi,
    PatternName::deepseek};
static_assert(std::size(kPatterns) == std::size(kPatternNames), "every pattern is compared");

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

// Random documents that are difficult to encode: many scripts, borders, runs, near-contractions.
class Texts {
 public:
  explicit Texts(const std::vector<Token>& tokens, uint64_t seed)
      : tokens_(tokens), random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }

  std::string document() {
    std::string text;
    const size_t parts = below(20) == 0 ? below(200) : below(20);
    for (size_t i = 0; i < parts; ++i) text += part();
    return text;
  }

  std::string damaged(std::string text) {
    for (size_t i = 0, flips = 1 + below(3); i < flips && !text.empty(); ++i) {
      text[below(text.size())] = static_cast<char>(below(256));
    }
    return text;
  }

 private:
  std::string part() {
    switch (below(12)) {
      case 0:
        return character(0x110000);
      case 1:
        return character(0x3000);
      case 2:
        return repeated(character(0x800), 1 + below(40));
      case 3:
        return repeated(" ", 1 + below(below(20) == 0 ? 700 : 20));
      case 4:
        return pick({"'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'l", "'v", "''", "'S", "'",
                     "'\u017f", "'LL", ".\n\n", "\n  \n", "123", "12345", "\u0663", "\u0301",
                     "!\u0301", "!\n/", "\n//", "aB", "ABc", "\u4e00AB", "\u200b", "\x01", "_x"});
      case 5:
        return pick({" ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x0b", "\u0085"});
      case 6:
        return repeated(pick({"a", "=", "-", "#", "0", "ab", "\u4e00", "\u0430", "\n"}),
                        below(300));
      case 7:
        return letters(1 + below(60), 26, below(2) == 0 ? 1 : 4);
      case 8:
        return letters(1 + below(below(30) == 0 ? 6000 : 100), 3 + below(2), 1);
      case 9:
        return run_of_script(1 + below(40));
      default:
        return whole_token();
    }
  }

  std::string pick(std::initializer_list<const char*> of) { return of.begin()[below(of.size())]; }

  static std::string repeated(const std::string& text, size_t times) {
    std::string all;
    while (times-- > 0) all += text;
    return all;
  }

  std::string letters(size_t count, size_t alphabet, size_t one_capital_in) {
    std::string text;
    while (count-- > 0) {
      const char first = one_capital_in > 1 && below(one_capital_in) == 0 ? 'A' : 'a';
      text.push_back(static_cast<char>(first + below(alphabet)));
    }
    return text;
  }

  std::string run_of_script(size_t count) {
    static constexpr uint32_t kFirst[] = {0x0410, 0x05D0, 0x0627, 0x0905, 0x0E01,  0x3042,
                                          0x30A2, 0x4E00, 0xAC00, 0x00C0, 0x1F600, 0x20000};
    const uint32_t first = kFirst[below(std::size(kFirst))];
    std::string text;
    while (count-- > 0) text += utf8(first + static_cast<uint32_t>(below(64)));
    return text;
  }

  std::string whole_token() {
    const std::string& bytes = tokens_[below(tokens_.size())].bytes;
    return reference::is_utf8(bytes) ? bytes : " ";
  }

  std::string character(uint32_t limit) {
    const auto code_point = static_cast<uint32_t>(below(limit));
    return code_point >= 0xD800 && code_point < 0xE000 ? "\n" : utf8(code_point);
  }

  static std::string utf8(uint32_t c) {
    const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 63)); };
    if (c < 0x80) return {static_cast<char>(c)};
    if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
    if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
  }

  const std::vector<Token>& tokens_;
  std::mt19937_64 random_;
};

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

constexpr size_t kMostDocuments = 6;

struct Block {
  std::vector<std::string> documents;
  std::string text;
  std::vector<int64_t> starts, ends;
  bool begins[kMostDocuments], closes[kMostDocuments];
};

Block make_block(Texts& texts) {
  Block block;
  const size_t count = texts.below(kMostDocuments + 1);
  for (size_t i = 0; i < count; ++i) {
    std::string document = texts.document();
    if (texts.below(8) == 0) document = texts.damaged(document);
    block.text += std::string(texts.below(3) == 0 ? texts.below(20) : 0, '\xFF');
    block.starts.push_back(static_cast<int64_t>(block.text.size()));
    block.text += document;
    block.ends.push_back(static_cast<int64_t>(block.text.size()));
    block.begins[i] = texts.below(2) == 0;
    block.closes[i] = texts.below(2) == 0;
    block.documents.push_back(std::move(document));
  }
  if (texts.below(2) == 0) block.text += "\xFF<|endoftext|>";
  return block;
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

// Encodes in allocations of exactly the promised size, so that a sanitizer detects any overrun.
Outcome encode(Encoder& encoder, const std::string& text, const DocumentParts& documents,
               std::vector<uint32_t>& ids) {
  const size_t room = Encoder::room_for(text.size(), documents.count);
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[text.size()]);
  const std::unique_ptr<uint8_t[]> out(new uint8_t[room * encoder.id_bytes()]);
  if (!text.empty()) std::memcpy(exact.get(), text.data(), text.size());
  const Outcome outcome = encoder.encode(exact.get(), text.size(), documents, out.get(), room);
  ids.resize(outcome.num_ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    uint32_t id = 0;
    std::memcpy(&id, out.get() + i * encoder.id_bytes(), encoder.id_bytes());
    ids[i] = id;
  }
  return outcome;
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
  try {
    return penstok::kernel::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
