#include "bpe/ranks.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace penstok::kernel {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;
constexpr size_t kMostRankDigits = 9;  // always fits 32 bits

std::array<uint8_t, 256> values_of_digits() {
  std::array<uint8_t, 256> values;
  values.fill(kNoDigit);
  for (uint8_t i = 0; i < 64; ++i) values[static_cast<uint8_t>(kDigits[i])] = i;
  return values;
}

bool decode_base64(std::string_view text, std::string& to) {
  static const std::array<uint8_t, 256> kValues = values_of_digits();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text[text.size() - 1] != '=' ? 0 : text[text.size() - 2] != '=' ? 1 : 2;
  to.clear();
  for (size_t at = 0; at < text.size(); at += 4) {
    const size_t missing = at + 4 == text.size() ? padding : 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) {
      const uint8_t value = i < 4 - missing ? kValues[static_cast<uint8_t>(text[at + i])] : 0;
      if (value == kNoDigit) return false;
      bits = bits << 6 | value;
    }
    if (bits & ((uint32_t{1} << 8 * missing) - 1)) return false;  // bits that no byte has
    const char decoded[3] = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8),
                             static_cast<char>(bits)};
    to.append(decoded, 3 - missing);
  }
  return true;
}

// Writes whole groups of four digits and returns where they end.
char* encode_base64(const std::string& bytes, char* to) {
  const auto byte_at = [&](size_t i) {
    return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : uint32_t{0};
  };
  for (size_t at = 0; at < bytes.size(); at += 3, to += 4) {
    const size_t length = std::min<size_t>(bytes.size() - at, 3);
    const uint32_t bits = byte_at(at) << 16 | byte_at(at + 1) << 8 | byte_at(at + 2);
    to[0] = kDigits[bits >> 18];
    to[1] = kDigits[bits >> 12 & 63];
    to[2] = length > 1 ? kDigits[bits >> 6 & 63] : '=';
    to[3] = length > 2 ? kDigits[bits & 63] : '=';
  }
  return to;
}

}  // namespace

std::optional<std::vector<Token>> parse_ranks(std::string_view content) {
  std::vector<Token> tokens;
  tokens.reserve(content.size() / 16);
  while (!content.empty()) {
    const size_t end = content.find('\n'), space = content.substr(0, end).find(' ');
    if (end == content.npos || space == content.npos) return {};
    const char* digits = content.data() + space + 1;
    const char* stop = content.data() + end;
    Token token{};
    if (stop - digits > static_cast<std::ptrdiff_t>(kMostRankDigits)) return {};
    const auto [read, error] = std::from_chars(digits, stop, token.id);
    if (error != std::errc() || read != stop || (*digits == '0' && stop - digits > 1)) return {};
    if (!decode_base64(content.substr(0, space), token.bytes)) return {};
    tokens.push_back(std::move(token));
    content.remove_prefix(end + 1);
  }
  return tokens;
}

std::string format_ranks(std::vector<Token> tokens) {
  constexpr size_t kMostRankBytes = 10;
  const auto is_lower = [](const Token& a, const Token& b) { return a.id < b.id; };
  if (!std::is_sorted(tokens.begin(), tokens.end(), is_lower)) {
    std::sort(tokens.begin(), tokens.end(), is_lower);
  }
  size_t most = 0;
  for (const Token& token : tokens) most += (token.bytes.size() + 2) / 3 * 4 + kMostRankBytes + 2;
  std::string content(most, '\0');
  char* to = content.data();
  for (const Token& token : tokens) {
    to = encode_base64(token.bytes, to);
    *to++ = ' ';
    to = std::to_chars(to, to + kMostRankBytes, token.id).ptr;
    *to++ = '\n';
  }
  content.resize(static_cast<size_t>(to - content.data()));
  return content;
}

}  // namespace penstok::kernel
