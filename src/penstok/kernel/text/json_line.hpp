// Reads one line of JSON Lines: validates it by RFC 8259 and extracts the requested field.
#pragma once

#include <string>
#include <vector>

#include "bytes.hpp"

namespace penstok::kernel {

// The values are part of the binding: readers/jsonl has the same.
enum class RecordCode : uint8_t { ok, broken, no_object, missing, null, no_string };

constexpr unsigned kMaxJsonDepth = 512;  // nesting of arrays and objects

// The requested field. `meta.text` is the top-level field of exactly that name if the line has one,
// otherwise the field `text` of the object `meta`.
struct JsonPath {
  explicit JsonPath(std::string key, bool any = false);

  std::string whole;
  bool takes_any;  // a value that is not a string is its JSON text, but null stays null
  std::vector<std::string> steps;
};

struct JsonField {
  RecordCode code;
  // The first byte that is not valid JSON (broken), the first byte of a value that is not a string,
  // or otherwise the first byte of the line.
  const uint8_t* position;
  uint8_t* text_end;  // the text is at `out`, up to here
  size_t num_lone_surrogates;
};

// Reads the JSON value that begins at `at`, which must be the only one on its line. The line ends
// with a line feed or at `end`; `at` is moved there. `out` holds as many bytes as the line has.
JsonField read_json_line(const uint8_t*& at, const uint8_t* end, const JsonPath& path,
                         uint8_t* out);

}  // namespace penstok::kernel
