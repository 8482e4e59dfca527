#include "text/json_line.hpp"

#include "text/json_string.hpp"

namespace penstok::kernel {
namespace {

bool is_digit(uint8_t byte) {
  return byte >= '0' && byte <= '9';
}

// A recursive descent parser. Functions that return false leave `at_` at the first invalid byte.
// Only a line feed ends a line, and JSON has none inside a string, so no function reads past it.
class LineReader {
 public:
  LineReader(const uint8_t* at, const uint8_t* end, const JsonPath& path, uint8_t* out)
      : line_(at), at_(at), end_(end), path_(path), out_(out) {
    forget();
  }

  JsonField read() {
    const bool is_object = peek() == '{';
    const bool valid = is_object ? read_object(1, 0) : skip_value(0);
    if (!valid || skip_blanks() != '\n') return {RecordCode::broken, at_, out_, 0};
    if (!is_object) return {RecordCode::no_object, line_, out_, 0};
    return field_;
  }

  const uint8_t* at() const { return at_; }

 private:
  uint8_t peek() const { return PENSTOK_LIKELY(at_ != end_) ? *at_ : '\n'; }

  uint8_t skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    return peek();
  }

  // Resets the field: of equal keys the last one counts.
  void forget() { field_ = {RecordCode::missing, line_, out_, 0}; }

  // An object on the path to the field has path_.steps[level] to find. For any other object `level`
  // is the number of steps.
  bool read_object(unsigned depth, size_t level) {
    if (depth > kMaxJsonDepth) return false;
    ++at_;
    if (skip_blanks() == '}') return skip_byte();
    for (;;) {
      if (peek() != '"') return false;
      const uint8_t* const key = ++at_;
      SkippedString skipped;
      if (!read_string(at_, end_, skipped)) return false;
      const uint8_t* const key_end = at_ - 1;
      if (skip_blanks() != ':') return false;
      ++at_;
      skip_blanks();
      const Key name{key, key_end, skipped.has_escapes};
      if (!read_member(name, depth, level)) return false;
      const uint8_t next = skip_blanks();
      if (next == '}') return skip_byte();
      if (next != ',') return false;
      ++at_;
      skip_blanks();
    }
  }

  struct Key {
    const uint8_t* begin;
    const uint8_t* end;
    bool has_escapes;

    bool is(const std::string& wanted) const {
      const size_t size = static_cast<size_t>(end - begin);
      if (!has_escapes) {
        return size == wanted.size() && std::memcmp(begin, wanted.data(), size) == 0;
      }
      if (size < wanted.size()) return false;
      std::vector<uint8_t> room(size + 1);
      UnescapedString text{room.data()};
      const uint8_t* at = begin;
      read_string(at, end + 1, text);
      const size_t text_size = static_cast<size_t>(text.to - room.data());
      return text.num_lone_surrogates == 0 && text_size == wanted.size() &&
             std::memcmp(room.data(), wanted.data(), text_size) == 0;
    }
  };

  bool read_member(const Key& key, unsigned depth, size_t level) {
    const size_t num_steps = path_.steps.size();
    if (level == 0 && num_steps > 1 && key.is(path_.whole)) {
      has_whole_key_ = true;
      return read_field(depth);
    }
    if (level == num_steps || has_whole_key_ || !key.is(path_.steps[level])) {
      return skip_value(depth);
    }
    if (level + 1 == num_steps) return read_field(depth);
    forget();
    return peek() == '{' ? read_object(depth + 1, level + 1) : skip_value(depth);
  }

  bool read_field(unsigned depth) {
    field_ = {RecordCode::no_string, at_, out_, 0};
    const uint8_t first = peek();
    if (first != '"') {
      if (first == 'n') field_.code = RecordCode::null;
      const uint8_t* const value = at_;
      if (!skip_value(depth)) return false;
      if (path_.takes_any && first != 'n') {
        const size_t size = static_cast<size_t>(at_ - value);
        std::memcpy(out_, value, size);
        field_ = {RecordCode::ok, line_, out_ + size, 0};
      }
      return true;
    }
    ++at_;
    UnescapedString text{out_};
    if (!read_string(at_, end_, text)) return false;
    field_ = {RecordCode::ok, line_, text.to, text.num_lone_surrogates};
    return true;
  }

  bool skip_value(unsigned depth) {
    switch (peek()) {
      case '"': {
        ++at_;
        SkippedString skipped;
        return read_string(at_, end_, skipped);
      }
      case '{':
        return read_object(depth + 1, path_.steps.size());
      case '[':
        return skip_array(depth + 1);
      case 't':
        return skip_word("true");
      case 'f':
        return skip_word("false");
      case 'n':
        return skip_word("null");
      default:
        return skip_number();
    }
  }

  bool skip_array(unsigned depth) {
    if (depth > kMaxJsonDepth) return false;
    ++at_;
    if (skip_blanks() == ']') return skip_byte();
    for (;;) {
      if (!skip_value(depth)) return false;
      const uint8_t next = skip_blanks();
      if (next == ']') return skip_byte();
      if (next != ',') return false;
      ++at_;
      skip_blanks();
    }
  }

  bool skip_byte() {
    ++at_;
    return true;
  }

  bool skip_word(const char* word) {
    for (; *word != '\0'; ++word, ++at_) {
      if (peek() != static_cast<uint8_t>(*word)) return false;
    }
    return true;
  }

  bool skip_number() {
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else if (!skip_digits()) {
      return false;
    }
    if (peek() == '.') {
      ++at_;
      if (!skip_digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!skip_digits()) return false;
    }
    return true;
  }

  bool skip_digits() {
    if (!is_digit(peek())) return false;
    while (is_digit(peek())) ++at_;
    return true;
  }

  const uint8_t* const line_;
  const uint8_t* at_;
  const uint8_t* const end_;
  const JsonPath& path_;
  uint8_t* const out_;
  JsonField field_;
  bool has_whole_key_ = false;
};

}  // namespace

JsonPath::JsonPath(std::string key, bool any) : whole(std::move(key)), takes_any(any) {
  size_t start = 0;
  for (size_t dot; (dot = whole.find('.', start)) != std::string::npos; start = dot + 1) {
    steps.push_back(whole.substr(start, dot - start));
  }
  steps.push_back(whole.substr(start));
}

JsonField read_json_line(const uint8_t*& at, const uint8_t* end, const JsonPath& path,
                         uint8_t* out) {
  LineReader reader(at, end, path, out);
  const JsonField field = reader.read();
  at = reader.at();
  if (field.code == RecordCode::broken && at != end) {
    const void* line_end = std::memchr(at, '\n', static_cast<size_t>(end - at));
    at = line_end == nullptr ? end : static_cast<const uint8_t*>(line_end);
  }
  return field;
}

}  // namespace penstok::kernel
