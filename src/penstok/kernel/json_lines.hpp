// The text of one field of every record of JSON Lines, laid one after the other.
#pragma once

#include <vector>

#include "json_line.hpp"

namespace penstok::kernel {

// One entry per record, good or not. Places in `lines` and `positions` (see JsonField) are those in
// the JSON, places in `starts` and `ends` those in the text; the text of a bad record is empty.
struct JsonRecords {
  std::vector<int64_t> lines, positions, starts, ends;
  std::vector<uint8_t> codes;
  size_t num_blank = 0;
  size_t num_lone_surrogates = 0;
  size_t consumed = 0;  // where the first line that was not read begins
};

// Reads the lines that begin before `stop`. `out` has room for `size` bytes and does not overlap
// `json`; it may be written behind the end of the text.
JsonRecords extract_json_lines(const uint8_t* json, size_t size, size_t stop, const JsonPath& path,
                               uint8_t* out);

}  // namespace penstok::kernel
