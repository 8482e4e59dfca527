// Scans CSV once, from start to end, to find where records begin.
//
// Whether a line feed is inside quotes depends on everything before it, so a caller that scans CSV
// in chunks passes the state from one chunk to the next.
#pragma once

#include "text/csv_bytes.hpp"

namespace penstok::kernel {

// What precedes the next byte. The values are part of the binding: readers/csv has the same.
enum class CsvState : uint8_t {
  field_start,  // a delimiter, a line feed or nothing: a quote here opens a field
  unquoted,     // text of a field without quotes, or after a closing quote
  quoted,       // text inside quotes
  quote,        // a quote inside quotes: it closes the field unless another one follows
};

// Scans the bytes from `at` to `end`, starting in `state`, up to the first record that begins after
// `stop`, and returns its start; nullptr if there is none.
const uint8_t* scan_csv(const uint8_t* at, const uint8_t* stop, const uint8_t* end,
                        uint8_t delimiter, CsvState& state);

}  // namespace penstok::kernel
