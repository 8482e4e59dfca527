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

// Length of the run of characters from `at` on for which `is_wanted` is true.
template <class Test>
size_t run_where(std::string_view text, size_t at, Test is_wanted) {
  size_t end = at;
  while (end < text.size()) {
    const Character character = decode(text, end);
    if (!is_wanted(character.code_point)) break;
    end += character.bytes;
  }
  return end - at;
}

// Length of the run of characters of one class that begins at `at`.
size_t run_of(std::string_view text, size_t at, unsigned kind) {
  return run_where(text, at, [=](uint32_t c) { return class_of(c) == kind; });
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

size_t any_case_contraction(std::string_view text) {
  if (byte_at(text, 0) == '\'' && byte_at(text, 1) == 0xC5 && byte_at(text, 2) == 0xBF) return 3;
  std::string lower(text.substr(0, 3));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return contraction(lower);
}

// \p{N}{1,most}
size_t digits_length(std::string_view text, size_t most) {
  size_t end = 0;
  for (size_t i = 0; i < most && end < text.size(); ++i) {
    const Character digit = decode(text, end);
    if (class_of(digit.code_point) != kClassNumber) break;
    end += digit.bytes;
  }
  return end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t line_space_length(std::string_view text) {
  for (size_t end = run_of(text, 0, kClassSpace); end > 0; --end) {
    if (is_newline(byte_at(text, end - 1))) return end;
  }
  return space_length(text);
}

bool is_mark(uint32_t c) {
  return detail_of(c) == kDetailMark;
}

// The alternatives of pattern_cl100k.hpp, in their order.
size_t cl100k_piece_length(std::string_view text, size_t most_digits, bool joins_marks) {
  if (const size_t length = any_case_contraction(text)) return length;
  const Character first = decode(text, 0);
  const auto is_letter = [=](uint32_t c) {
    return class_of(c) == kClassLetter || (joins_marks && is_mark(c));
  };
  const auto is_other = [=](uint32_t c) { return class_of(c) == kClassOther && !is_letter(c); };
  const unsigned kind = class_of(first.code_point);
  const bool may_lead =
      kind == kClassOther || (kind == kClassSpace && !is_newline(byte_at(text, 0)));
  const size_t lead = may_lead ? first.bytes : 0;
  if (const size_t letters = run_where(text, lead, is_letter)) return lead + letters;
  if (const size_t letters = run_where(text, 0, is_letter)) return letters;
  if (kind == kClassNumber) return digits_length(text, most_digits);
  const size_t blank = text[0] == ' ' ? 1 : 0;
  if (const size_t others = run_where(text, blank, is_other)) {
    size_t end = blank + others;
    while (is_newline(byte_at(text, end))) ++end;
    return end;
  }
  return line_space_length(text);
}

// The words of o200k from `at` on: capitals and then small letters, letters without case and marks
// being both. Returns their length, or 0.
size_t cased_word_length(std::string_view text, size_t at, bool needs_small, bool has_han) {
  const auto is_word = [=](uint32_t c, unsigned other_case) {
    if (!has_han && is_han(c)) return false;
    return (class_of(c) == kClassLetter && detail_of(c) != other_case) || is_mark(c);
  };
  const auto is_capital = [=](uint32_t c) { return is_word(c, kDetailSmall); };
  const auto is_small = [=](uint32_t c) { return is_word(c, kDetailCapital); };
  const size_t capitals = run_where(text, at, is_capital);
  if (!needs_small) return capitals == 0 ? 0 : capitals + run_where(text, at + capitals, is_small);
  for (size_t taken = capitals;; --taken) {
    const bool is_border = (byte_at(text, at + taken) & 0xC0) != 0x80;
    const size_t small = is_border ? run_where(text, at + taken, is_small) : 0;
    if (small != 0) return taken + small;
    if (taken == 0) return 0;
  }
}

size_t o200k_piece_length(std::string_view text, size_t most_digits, bool has_contractions,
                          bool is_kimi = false) {
  const auto is_apart = [=](uint32_t c) { return is_kimi && is_han(c); };
  if (const size_t han = run_where(text, 0, is_apart)) return han;
  const Character first = decode(text, 0);
  const unsigned kind = class_of(first.code_point);
  const bool may_lead =
      kind == kClassOther || (kind == kClassSpace && !is_newline(byte_at(text, 0)));
  for (bool needs_small : {true, false}) {
    for (size_t lead : {may_lead ? first.bytes : 0, size_t{0}}) {
      const size_t length = cased_word_length(text, lead, needs_small, !is_kimi);
      if (length == 0) continue;
      const size_t end = lead + length;
      return end + (has_contractions ? any_case_contraction(text.substr(end)) : 0);
    }
  }
  if (kind == kClassNumber) return digits_length(text, most_digits);
  const size_t blank = text[0] == ' ' ? 1 : 0;
  if (const size_t others = run_of(text, blank, kClassOther)) {
    size_t end = blank + others;
    while (is_newline(byte_at(text, end)) || (!is_kimi && byte_at(text, end) == '/')) ++end;
    return end;
  }
  return line_space_length(text);
}

bool is_kana_or_han(uint32_t c) {
  return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x4E00 && c <= 0x9FA5);
}

// The third split of pattern_deepseek.hpp at the beginning of a text; 0 if nothing matches.
size_t deepseek_match(std::string_view text) {
  const auto is_ascii_letter = [](uint32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
  const auto is_letter = [](uint32_t c) { return class_of(c) == kClassLetter || is_mark(c); };
  const auto is_other = [](uint32_t c) {
    return detail_of(c) == kDetailPunctuation || detail_of(c) == kDetailSymbol;
  };
  const Character first = decode(text, 0);
  if (first.code_point < 0x80 && is_other(first.code_point)) {
    if (const size_t letters = run_where(text, 1, is_ascii_letter)) return 1 + letters;
  }
  const bool may_lead = !is_newline(byte_at(text, 0)) && !is_other(first.code_point) &&
                        class_of(first.code_point) != kClassLetter;
  const size_t lead = may_lead ? first.bytes : 0;
  if (const size_t letters = run_where(text, lead, is_letter)) return lead + letters;
  if (const size_t letters = run_where(text, 0, is_letter)) return letters;
  const size_t blank = text[0] == ' ' ? 1 : 0;
  if (const size_t others = run_where(text, blank, is_other)) {
    size_t end = blank + others;
    while (is_newline(byte_at(text, end))) ++end;
    return end;
  }
  return class_of(first.code_point) == kClassSpace ? line_space_length(text) : 0;
}

size_t deepseek_piece_length(std::string_view text) {
  if (const size_t digits = digits_length(text, 3)) return digits;
  const bool is_first_han = is_kana_or_han(decode(text, 0).code_point);
  text = text.substr(0, run_where(text, 0, [=](uint32_t c) {
                       return class_of(c) != kClassNumber && is_kana_or_han(c) == is_first_han;
                     }));
  if (const size_t length = deepseek_match(text)) return length;
  size_t end = decode(text, 0).bytes;  // what no alternative matches is a piece
  while (end < text.size() && deepseek_match(text.substr(end)) == 0) end += decode(text, end).bytes;
  return end;
}

size_t bloom_piece_length(std::string_view text) {
  const auto is_word = [](uint32_t c) { return class_of(c) != kClassSpace && !is_stop(c); };
  const auto match = [=](size_t at) {
    const size_t blank = byte_at(text, at) == ' ' ? 1 : 0;
    const size_t word = run_where(text, at + blank, is_word);
    return word == 0 ? 0 : blank + word;
  };
  if (const size_t length = match(0)) return length;
  size_t end = decode(text, 0).bytes;  // what is not matched is a piece
  while (end < text.size() && match(end) == 0) end += decode(text, end).bytes;
  return end;
}

size_t gpt2_piece_length(std::string_view text) {
  if (const size_t length = contraction(text)) return length;
  const size_t blank = text[0] == ' ' ? 1 : 0;
  for (unsigned kind : {kClassLetter, kClassNumber, kClassOther}) {
    if (const size_t length = run_of(text, blank, kind)) return blank + length;
  }
  return space_length(text);
}

size_t starcoder_piece_length(std::string_view text) {
  if (const size_t digit = digits_length(text, 1)) return digit;
  return gpt2_piece_length(text.substr(
      0, run_where(text, 0, [](uint32_t c) { return class_of(c) != kClassNumber; })));
}

size_t piece_length(std::string_view text, PatternName pattern) {
  switch (pattern) {
    case PatternName::gpt2:
      return gpt2_piece_length(text);
    case PatternName::starcoder:
      return starcoder_piece_length(text);
    case PatternName::cl100k:
      return cl100k_piece_length(text, 3, false);
    case PatternName::nanochat:
      return cl100k_piece_length(text, 2, false);
    case PatternName::qwen2:
      return cl100k_piece_length(text, 1, false);
    case PatternName::qwen35:
      return cl100k_piece_length(text, 1, true);
    case PatternName::o200k:
      return o200k_piece_length(text, 3, true);
    case PatternName::tekken:
      return o200k_piece_length(text, 1, false);
    case PatternName::kimi:
      return o200k_piece_length(text, 3, true, true);
    case PatternName::deepseek:
      return deepseek_piece_length(text);
    case PatternName::bloom:
      return bloom_piece_length(text);
    case PatternName::sentencepiece:
      return text.size();
  }
  return 0;
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
