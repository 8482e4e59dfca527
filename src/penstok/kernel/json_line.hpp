// One line of JSON Lines: is it JSON by RFC 8259, and what does the wanted field hold?
#pragma once

#include <string>
#include <vector>

#include "bytes.hpp"

namespace penstok::kernel {

// The values are part of the binding: penstok/json_lines.py has the same.
enum class RecordCode : uint8_t { ok, broken, no_object, missing, null, no_string };

constexpr unsigned kMaxJsonDepth = 512;  // of arrays and objects inside each other

// Which field is wanted. `meta.text` is the top-level field of just that name if the line has one,
// else the field `text` of the object `meta`.
struct JsonPath {
  explicit JsonPath(std::string key);

  std::string whole;
  std::vector<std::string> steps;
};

struct JsonField {
  RecordCode code;
  // The first byte that valid JSON cannot have there (broken), the first byte of a value that is no
  // string, or else that of the line.
  const uint8_t* position;
  uint8_t* text_end;  // the text is at `out`, up to here
  size_t num_lone_surrogates;
};

// Reads the JSON value that begins at `at`, which must be alone on its line. The line ends with a
// line feed or at `end`; `at` is moved there. `out` has room for as many bytes as the line has.
JsonField read_json_line(const uint8_t*& at, const uint8_t* end, const JsonPath& path,
                         uint8_t* out);

}  // namespace penstok::kernel
