// Feeds random lines, valid and damaged, to the JSON Lines extractor, in buffers of exactly the
// size it may touch; meant to be built with PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_json [--rounds N] [--seed N]
//
// It checks that the text of a valid line is the one it was made from, and that a buffer of many
// lines gives the same as each line alone. The Python tests check which lines are refused.
#include <algorithm>
#include <cstdio>

#include "tests/fuzz_formats.hpp"
#include "tests/fuzz_main.hpp"
#include "text/json_lines.hpp"

namespace penstok::kernel {
namespace {

class Lines : public Chance {
 public:
  using Chance::Chance;

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

  std::string damaged_line(const std::string& line) {
    std::string found = damaged(line, "\"\\{}[],:un0-.eE\r\x01\xFF");
    std::replace(found.begin(), found.end(), '\n', ' ');
    return found;
  }

  std::string deep() {
    const size_t depth = 500 + below(30);
    return "{\"a\":" + std::string(depth, '[') + std::string(below(2) * depth, ']') + "}";
  }

 private:
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
};

struct Extract {
  JsonRecords records;
  std::string text;
};

Extract extract(const std::string& json, size_t stop) {
  static const JsonPath path("meta.text");
  const Exact exact(json), out(json.size());
  Extract extract{extract_json_lines(exact.data(), json.size(), stop, path, out.data()), ""};
  extract.text = out.text(extract.records.ends.empty() ? 0 : extract.records.ends.back());
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
    if (!good) line = lines.below(20) == 0 ? lines.deep() : lines.damaged_line(line);
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

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_rounds(argc, argv, 20000, penstok::kernel::round);
}
