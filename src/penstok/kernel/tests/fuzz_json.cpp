// Feeds random lines, valid and damaged, to the JSON Lines extractor, in buffers of exactly the
// size it may touch; meant to be built with PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_json [--rounds N] [--seed N]
//
// It checks that the text of a valid line is the one it was made from, and that a buffer of many
// lines gives the same as each line alone. The Python tests check which lines are refused.
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>

#include "tests/fuzz_main.hpp"
#include "text/json_lines.hpp"

namespace penstok::kernel {
namespace {

class Lines {
 public:
  explicit Lines(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }

  // An object whose field `meta.text` is `text`.
  std::string with_text(const std::string& text) {
    std::string line = "{" + blank();
    for (size_t i = below(3); i > 0; --i) line += string(word()) + ":" + value(1) + ",";
    line += "\"meta\"" + blank() + ":{\"n\":" + value(1) + ",\"text\":" + blank() + string(text);
    return line + "}" + blank() + "}" + blank();
  }

  std::string text() {
    std::string text;
    for (size_t i = below(below(10) == 0 ? 200 : 20); i > 0; --i) {
      text += pick({"a", "word ", "\n", "\t", "\"", "\\", "/", "\u00e9", "\u4e16", "\U0001F600",
                    "0123456789abcdef"});
    }
    return text;
  }

  std::string damaged(std::string line) {
    for (size_t i = 1 + below(3); i > 0 && !line.empty(); --i) {
      const size_t at = below(line.size());
      const char byte = below(2) == 0 ? "\"\\{}[],:un0-.eE\r\x01\xFF"[below(19)]
                                      : static_cast<char>(11 + below(245));
      switch (below(4)) {
        case 0:
          line[at] = byte;
          break;
        case 1:
          line.insert(at, 1, byte);
          break;
        case 2:
          line.erase(at, 1 + below(4));
          break;
        default:
          line.resize(at);
      }
    }
    return line;
  }

  std::string deep() {
    const size_t depth = 500 + below(30);
    return "{\"a\":" + std::string(depth, '[') + std::string(below(2) * depth, ']') + "}";
  }

 private:
  const char* pick(std::initializer_list<const char*> of) { return of.begin()[below(of.size())]; }
  std::string blank() { return pick({"", "", " ", "\t", "\r", "  "}); }
  std::string word() { return pick({"id", "url", "text", "", "m\u00e9ta"}); }

  std::string value(unsigned depth) {
    switch (below(depth < 5 ? 6 : 4)) {
      case 0:
        return pick({"0", "-1", "1.5", "2e9", "-0.1E-7", "123456789012345678901234567890"});
      case 1:
        return pick({"true", "false", "null"});
      case 2:
      case 3:
        return string(text());
      case 4:
        return "[" + value(depth + 1) + blank() + "," + value(depth + 1) + "]";
      default:
        return "{" + string(word()) + ":" + blank() + value(depth + 1) + "}";
    }
  }

  // The text as JSON; characters are escaped at random, control characters always.
  std::string string(const std::string& text) {
    std::string json = "\"";
    for (size_t i = 0; i < text.size();) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + i;
      const uint32_t c = length == 1   ? byte
                         : length == 2 ? code_point2(p)
                         : length == 3 ? code_point3(p)
                                       : code_point4(p);
      if (byte < 0x20 || byte == '"' || byte == '\\' || below(8) == 0) {
        json += escaped(c);
      } else {
        json += text.substr(i, length);
      }
      i += length;
    }
    return json + "\"";
  }

  std::string escaped(uint32_t c) {
    if (below(2) == 0) {
      if (c == '\n') return "\\n";
      if (c == '\t') return "\\t";
      if (c == '"' || c == '\\' || c == '/') return std::string("\\") + static_cast<char>(c);
    }
    if (c < 0x10000) return unit(c);
    return unit(0xD800 + ((c - 0x10000) >> 10)) + unit(0xDC00 + (c & 0x3FF));
  }

  std::string unit(uint32_t value) {
    char spelled[8];
    std::snprintf(spelled, sizeof spelled, below(2) == 0 ? "\\u%04x" : "\\u%04X", value & 0xFFFF);
    return spelled;
  }

  std::mt19937_64 random_;
};

struct Extract {
  JsonRecords records;
  std::string text;
};

// Allocations of exactly the promised size, so that a sanitizer sees any step outside.
Extract extract(const std::string& json, size_t stop) {
  static const JsonPath path("meta.text");
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[json.size()]);
  const std::unique_ptr<uint8_t[]> out(new uint8_t[json.size()]);
  if (!json.empty()) std::memcpy(exact.get(), json.data(), json.size());
  Extract extract{extract_json_lines(exact.get(), json.size(), stop, path, out.get()), ""};
  const size_t size = extract.records.ends.empty() ? 0 : extract.records.ends.back();
  extract.text.assign(reinterpret_cast<const char*>(out.get()), size);
  return extract;
}

bool round(uint64_t seed) {
  Lines lines(seed);
  std::string json, texts;
  std::vector<uint8_t> codes;
  std::vector<int64_t> positions;
  for (size_t i = lines.below(5); i > 0; --i) {
    const std::string text = lines.text();
    std::string line = lines.with_text(text);
    const bool good = lines.below(2) == 0;
    if (!good) line = lines.below(20) == 0 ? lines.deep() : lines.damaged(line);
    const Extract alone = extract(line, line.size());
    if (good && (alone.text != text || alone.records.codes != std::vector<uint8_t>{0}))
      return false;
    for (int64_t position : alone.records.positions) {
      positions.push_back(position + static_cast<int64_t>(json.size()));
    }
    codes.insert(codes.end(), alone.records.codes.begin(), alone.records.codes.end());
    texts += alone.text;
    json += line + (i > 1 || lines.below(2) == 0 ? "\n" : "");
  }
  const Extract all = extract(json, json.size());
  return all.text == texts && all.records.codes == codes && all.records.positions == positions &&
         all.records.consumed == json.size();
}

int run(const std::vector<std::string>& arguments) {
  size_t rounds = 20000;
  uint64_t seed = 1;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--rounds") {
      rounds = std::stoull(arguments[i + 1]);
    } else if (arguments[i] == "--seed") {
      seed = std::stoull(arguments[i + 1]);
    } else {
      throw std::runtime_error("unknown option " + arguments[i]);
    }
  }
  for (size_t i = 0; i < rounds; ++i) {
    if (round(seed + i)) continue;
    std::printf("DIFFERS: seed %llu\n", static_cast<unsigned long long>(seed + i));
    return 1;
  }
  std::printf("%zu buffers: all as expected\n", rounds);
  return 0;
}

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_main(argc, argv, penstok::kernel::run);
}
