// Extracts the text of one field from every record of JSON Lines into one buffer.
#pragma once

#include <vector>

#include "text/json_line.hpp"

namespace penstok::kernel {

// One entry per record, valid or not. `lines` and `positions` (see JsonField) are offsets in the
// JSON, `starts` and `ends` are offsets in the text; the text of an invalid record is empty.
struct JsonRecords {
  std::vector<int64_t> lines, positions, starts, ends;
  std::vector<uint8_t> codes;
  size_t num_blank = 0;
  size_t num_lone_surrogates = 0;
  size_t consumed = 0;  // offset of the first line that was not read
};

// Reads the lines that begin before `stop`. `out` holds `size` bytes and does not overlap `json`;
// bytes after the end of the text may be overwritten.
JsonRecords extract_json_lines(const uint8_t* json, size_t size, size_t stop, const JsonPath& path,
                               uint8_t* out);

}  // namespace penstok::kernel
