// What the fuzzers of the kernel share: random text, blocks of documents, and exact buffers.
#pragma once

#include <initializer_list>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bpe/encoder.hpp"
#include "tests/reference.hpp"

namespace penstok::kernel {

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
    switch (below(15)) {
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
                     "!\u0301", "!\n/", "\n//", "aB", "ABc", "\u4e00AB", "\u200b", "\x01", "_x",
                     ", ", ". a", "(", ")|", "\u060c", "\u06d4 ", "\u0964", "\u2026", " \u3001",
                     "\u3002", "\uff0c"});
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
      case 10:
        return ascii(1 + below(400));
      case 11:
        return few_characters(1 + below(400));
      case 12:
        return std::string(1 + below(40), static_cast<char>(below(2)));
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

  // Long runs of ASCII, in which borders of all kinds meet every position of 64 bytes.
  std::string ascii(size_t count) {
    static constexpr char kCommon[] = "aaeettnosl  '.,10\n\t";
    std::string text;
    while (count-- > 0) {
      const bool is_common = below(8) != 0;
      text.push_back(is_common ? kCommon[below(sizeof kCommon - 1)]
                               : static_cast<char>(below(128)));
    }
    return text;
  }

  // Words of many characters that random tokens consist of: long pieces in overlapping windows.
  std::string few_characters(size_t count) {
    const size_t kinds = 2 + below(2), one_space_in = below(2) == 0 ? 1000 : 100;
    std::string text;
    while (count-- > 0) {
      static constexpr const char* kCharacters[] = {"\u4e00", "\u4e01", "\u0430"};
      text += below(one_space_in) == 0 ? " " : kCharacters[below(kinds)];
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

constexpr size_t kMostDocuments = 6;

struct Block {
  std::vector<std::string> documents;
  std::string text;
  std::vector<int64_t> starts, ends;
  bool begins[kMostDocuments], closes[kMostDocuments];
};

// `more` is put into some documents.
inline Block make_block(Texts& texts, const std::string& more = "") {
  Block block;
  const size_t count = texts.below(kMostDocuments + 1);
  for (size_t i = 0; i < count; ++i) {
    std::string document = texts.document();
    if (!more.empty() && texts.below(3) == 0) document = more + document + more + "x";
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

// Encodes in allocations of exactly the promised size, so that a sanitizer detects any overrun.
inline Outcome encode(Encoder& encoder, const std::string& text, const DocumentParts& documents,
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

}  // namespace penstok::kernel
