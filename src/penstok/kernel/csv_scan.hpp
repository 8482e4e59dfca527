// Through CSV once, from front to back: where do records begin?
//
// Only what comes before tells whether a line feed stands inside quotes, so whoever reads CSV in
// pieces keeps a state from piece to piece.
#pragma once

#include "csv_bytes.hpp"

namespace penstok::kernel {

// What stands before the next byte. The values are part of the binding: penstok/csv_fallback.py
// has them.
enum class CsvState : uint8_t {
  field_start,  // a delimiter, a line feed or nothing: a quote here opens a field
  unquoted,     // text of a field that needs no quotes, or what follows a closing quote
  quoted,       // text inside quotes
  quote,        // inside quotes, a quote: it closes the field unless another one follows
};

// Goes through the bytes from `at` to `end`, on from `state`, up to the first record that begins
// behind `stop`, and returns where that is; nullptr if none does.
const uint8_t* scan_csv(const uint8_t* at, const uint8_t* stop, const uint8_t* end,
                        uint8_t delimiter, CsvState& state);

}  // namespace penstok::kernel
