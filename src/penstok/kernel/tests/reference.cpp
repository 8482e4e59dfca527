#include "tests/reference.hpp"

#include "text/unicode_classes.hpp"

namespace penstok::kernel::reference {
namespace {

struct Character {
  uint32_t code_point;
  size_t bytes;  // 0: malformed
};

uint8_t byte_at(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
}

Character decode(std::string_view text, size_t at) {
  const uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  uint32_t code_point = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, at + i) & 0xC0) != 0x80) return {0, 0};
    code_point = code_point << 6 | (byte_at(text, at + i) & 0x3F);
  }
  const bool wrong = (bytes == 3 && code_point < 0x800) || (bytes == 4 && code_point < 0x10000) ||
                     code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000);
  return {code_point, wrong ? 0 : bytes};
}

// Length of the run of characters of one class that begins at `at`.
size_t run_of(std::string_view text, size_t at, unsigned kind) {
  size_t end = at;
  while (end < text.size()) {
    const Character character = decode(text, end);
    if (class_of(character.code_point) != kind) break;
    end += character.bytes;
  }
  return end - at;
}

size_t contraction(std::string_view text) {
  for (std::string_view tail : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, tail.size()) == tail) return tail.size();
  }
  return 0;
}

// The length of a piece of white space: all of it at the end of the text, otherwise all but the
// last character if there are several.
size_t space_length(std::string_view text) {
  const size_t spaces = run_of(text, 0, kClassSpace);
  if (spaces == text.size()) return spaces;
  size_t last = spaces - 1;  // the last white space character of the run
  while ((byte_at(text, last) & 0xC0) == 0x80) --last;
  return last > 0 ? last : spaces;
}

bool is_newline(uint8_t byte) {
  return byte == '\r' || byte == '\n';
}

// The alternatives of pattern_cl100k.hpp, in their order.
size_t cl100k_piece_length(std::string_view text, size_t most_digits) {
  if (text[0] == '\'' && byte_at(text, 1) == 0xC5 && byte_at(text, 2) == 0xBF) return 3;
  std::string lower(text.substr(0, 3));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  if (const size_t length = contraction(lower)) return length;
  const Character first = decode(text, 0);
  const unsigned kind = class_of(first.code_point);
  const bool may_lead =
      kind == kClassOther || (kind == kClassSpace && !is_newline(byte_at(text, 0)));
  const size_t lead = may_lead ? first.bytes : 0;
  if (const size_t letters = run_of(text, lead, kClassLetter)) return lead + letters;
  if (kind == kClassNumber) {
    size_t end = 0;
    for (size_t i = 0; i < most_digits && end < text.size(); ++i) {
      const Character digit = decode(text, end);
      if (class_of(digit.code_point) != kClassNumber) break;
      end += digit.bytes;
    }
    return end;
  }
  const size_t blank = text[0] == ' ' ? 1 : 0;
  if (const size_t others = run_of(text, blank, kClassOther)) {
    size_t end = blank + others;
    while (is_newline(byte_at(text, end))) ++end;
    return end;
  }
  for (size_t end = run_of(text, 0, kClassSpace); end > 0; --end) {
    if (is_newline(byte_at(text, end - 1))) return end;
  }
  return space_length(text);
}

size_t gpt2_piece_length(std::string_view text) {
  if (const size_t length = contraction(text)) return length;
  const size_t blank = text[0] == ' ' ? 1 : 0;
  for (unsigned kind : {kClassLetter, kClassNumber, kClassOther}) {
    if (const size_t length = run_of(text, blank, kind)) return blank + length;
  }
  return space_length(text);
}

size_t piece_length(std::string_view text, PatternName pattern) {
  if (pattern == PatternName::gpt2) return gpt2_piece_length(text);
  return cl100k_piece_length(text, pattern == PatternName::cl100k ? 3 : 1);
}

// A piece that is a token has its id, whether merges produce it or not.
void encode_piece(const Ranks& ranks, std::string_view piece, std::vector<uint32_t>& ids) {
  if (const auto whole = ranks.find(std::string(piece)); whole != ranks.end()) {
    ids.push_back(whole->second);
    return;
  }
  std::vector<std::string> parts;
  for (char c : piece) parts.emplace_back(1, c);
  for (;;) {
    uint32_t best = ~0u;
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        where = i;
      }
    }
    if (best == ~0u) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode(text, at);
    if (character.bytes == 0) return false;
    at += character.bytes;
  }
  return true;
}

std::vector<std::string_view> split(std::string_view text, PatternName pattern) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t length = piece_length(text, pattern);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

std::vector<uint32_t> encode(const Ranks& ranks, std::string_view text, PatternName pattern) {
  std::vector<uint32_t> ids;
  for (std::string_view piece : split(text, pattern)) encode_piece(ranks, piece, ids);
  return ids;
}

}  // namespace penstok::kernel::reference
