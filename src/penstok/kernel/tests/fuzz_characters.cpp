// Compares every instruction set with a slow, simple SentencePiece on random vocabularies and text,
// in buffers of exactly the size the kernel may touch; meant to be built with
// PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_characters [--rounds N] [--seed N]
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "bpe/encoder.hpp"
#include "tests/fuzz_main.hpp"
#include "tests/fuzz_texts.hpp"
#include "tests/reference.hpp"

namespace penstok::kernel {
namespace {

constexpr const char* kMark = "\u2581";

// A vocabulary as a file has it: characters, longer tokens with their ranks, and ids of bytes.
struct Characters {
  std::map<std::string, uint32_t> ids;    // of characters and longer tokens
  std::map<std::string, uint32_t> ranks;  // of longer tokens
  uint32_t byte_ids[256];
  uint32_t eot_id;
};

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const size_t length =
        character_at(reinterpret_cast<const uint8_t*>(text.data()) + at).bytes;
    found.push_back(text.substr(at, length));
    at += length;
  }
  return found;
}

// Ids are in random order; `far` puts some above 16 bits.
Characters random_characters(std::mt19937_64& random, bool far) {
  static const char* const kAll[] = {"a",      "b",      "1",      ".",      "\n",     "=",
                                     "\u00e9", "\u0301", "\u00bd", "\u2003", "\u4e00", "\u4e01",
                                     "\u4e8c", "\u3002", "\U0001f600", "\U0001f601"};
  std::vector<std::string> made = {" "};
  for (const char* character : kAll) {
    if (random() % 4 != 0) made.emplace_back(character);
  }
  const size_t num_characters = made.size();
  std::set<std::string> longer;
  for (size_t i = 0, wanted = 5 + random() % 800; i < wanted; ++i) {
    const std::string token = made[random() % made.size()] + made[random() % made.size()];
    const size_t first = token.find_first_not_of(' ');
    if (token.size() > (random() % 8 == 0 ? 60u : 12u)) continue;
    if (first != std::string::npos && token.find(' ', first) != std::string::npos) continue;
    if (longer.insert(token).second) made.push_back(token);
  }
  std::vector<uint32_t> numbers(made.size() + 257);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint32_t>(i);
  std::shuffle(numbers.begin(), numbers.end(), random);
  Characters found;
  for (size_t i = 0; i < made.size(); ++i) found.ids[made[i]] = numbers[i] + (far ? 70000 : 0);
  for (size_t byte = 0; byte < 256; ++byte) found.byte_ids[byte] = numbers[made.size() + byte];
  found.eot_id = numbers.back();
  std::vector<std::string> order(made.begin() + static_cast<std::ptrdiff_t>(num_characters),
                                 made.end());
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < order.size(); ++i) found.ranks[order[i]] = static_cast<uint32_t>(i);
  return found;
}

// Merges characters by rank, and spells those that have no id as bytes.
std::vector<uint32_t> encode_slowly(const Characters& vocabulary, std::string text,
                                    bool adds_space) {
  if (adds_space && !text.empty()) text.insert(0, " ");
  for (size_t at; (at = text.find(kMark)) != std::string::npos;) text.replace(at, 3, " ");
  std::vector<std::string> parts = characters_of(text);
  for (;;) {
    uint32_t best = ~0u;
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = vocabulary.ranks.find(parts[i] + parts[i + 1]);
      if (found != vocabulary.ranks.end() && found->second < best) {
        best = found->second;
        where = i;
      }
    }
    if (best == ~0u) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<uint32_t> ids;
  for (const std::string& part : parts) {
    if (const auto found = vocabulary.ids.find(part); found != vocabulary.ids.end()) {
      ids.push_back(found->second);
      continue;
    }
    for (char c : part) ids.push_back(vocabulary.byte_ids[static_cast<uint8_t>(c)]);
  }
  return ids;
}

// The vocabulary as the kernel takes it: bytes, parts of characters, characters, longer tokens.
struct Converted {
  std::vector<Token> tokens;
  std::vector<uint32_t> output_ids;
};

Converted convert(const Characters& vocabulary) {
  std::set<std::string> parts;
  std::vector<std::string> wide, longer(vocabulary.ranks.size());
  for (const auto& [text, id] : vocabulary.ids) {
    if (text.size() == 1 || vocabulary.ranks.count(text)) continue;
    for (size_t length = 2; length < text.size(); ++length) parts.insert(text.substr(0, length));
    wide.push_back(text);
  }
  for (const auto& [text, rank] : vocabulary.ranks) longer[rank] = text;
  Converted converted;
  const auto add = [&](const std::string& bytes, uint32_t id) {
    converted.tokens.push_back({bytes, static_cast<uint32_t>(converted.tokens.size())});
    converted.output_ids.push_back(id);
  };
  const auto id_of = [&](const std::string& text) { return vocabulary.ids.at(text); };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    add(text, byte < 0x80 && vocabulary.ids.count(text) ? id_of(text) : vocabulary.byte_ids[byte]);
  }
  for (const std::string& part : parts) add(part, OutputIds::kPart);
  for (const std::string& text : wide) add(text, id_of(text));
  std::vector<Token> all = converted.tokens;
  for (const std::string& text : longer) all.push_back({text, static_cast<uint32_t>(all.size())});
  std::set<std::string> unused;  // no merges produce them
  const Vocabulary with_unused(std::move(all));
  for (const Token& token : with_unused.whole_tokens()) unused.insert(token.bytes);
  for (const std::string& text : longer) {
    if (!unused.count(text)) add(text, id_of(text));
  }
  return converted;
}

bool fuzz(uint64_t seed) {
  std::mt19937_64 random(seed);
  const bool far = random() % 2 == 0, adds_space = random() % 2 == 0;
  const Characters vocabulary = random_characters(random, far);
  const Converted converted = convert(vocabulary);
  const auto eot = static_cast<uint32_t>(converted.tokens.size());
  std::vector<uint32_t> output_ids = converted.output_ids;
  output_ids.push_back(vocabulary.eot_id);
  Texts texts(converted.tokens, seed);
  std::vector<std::unique_ptr<Encoder>> encoders;
  for (Isa isa : available_isas()) {
    for (size_t table_bytes : {size_t{1} << 10, size_t{4} << 20}) {
      const EncoderOptions options{eot, EotMode::append, table_bytes, name_of(isa),
                                   PatternName::sentencepiece, {}, output_ids, adds_space};
      encoders.emplace_back(new Encoder(converted.tokens, options));
    }
  }
  for (size_t round = 0; round < 6; ++round) {
    const Block block = make_block(texts, kMark);
    std::vector<uint32_t> expected;
    size_t malformed = Outcome::kAllWellFormed;
    for (size_t i = 0; i < block.documents.size() && malformed == Outcome::kAllWellFormed; ++i) {
      if (!reference::is_utf8(block.documents[i])) {
        malformed = i;
        continue;
      }
      const std::vector<uint32_t> ids =
          encode_slowly(vocabulary, block.documents[i], adds_space && block.begins[i]);
      expected.insert(expected.end(), ids.begin(), ids.end());
      if (block.closes[i]) expected.push_back(vocabulary.eot_id);
    }
    for (const auto& encoder : encoders) {
      std::vector<uint32_t> ids;
      const DocumentParts documents{block.starts.data(), block.ends.data(), block.begins,
                                    block.closes, block.starts.size()};
      const Outcome outcome = encode(*encoder, block.text, documents, ids);
      if (outcome.malformed_document == malformed &&
          (malformed != Outcome::kAllWellFormed || ids == expected)) {
        continue;
      }
      std::printf("%s: ", name_of(encoder->isa()));
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_rounds(argc, argv, 200, penstok::kernel::fuzz);
}
