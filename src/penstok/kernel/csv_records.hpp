// The text of one column of every record of CSV, laid one after the other.
//
// The dialect is that of RFC 4180: a field is quoted if a quote is its first byte; inside, two
// quotes are one, and delimiters and line ends are text. A record ends with a line feed, before
// which a carriage return does not count, or where the buffer ends. Lines without a byte are none.
#pragma once

#include <vector>

#include "csv_bytes.hpp"

namespace penstok::kernel {

// What became of a record. The values are part of the binding: penstok/csv_fallback.py has them.
enum class CsvCode : uint8_t { ok, wrong_number, behind_quote, not_closed };

struct CsvTable {
  uint8_t delimiter;
  size_t column;       // which one is wanted
  size_t num_columns;  // more than `column`
};

// One entry per record, good or not. Places in `records` and `positions` are those in the CSV,
// places in `starts` and `ends` those in the text; the text of a bad record is empty. A position is
// that of the first byte behind a closing quote that cannot stand there, that of the quote that is
// not closed, or else that of the record.
struct CsvRecords {
  std::vector<int64_t> records, positions, starts, ends;
  std::vector<uint8_t> codes;
  size_t num_blank = 0;
  size_t consumed = 0;  // where the first record that was not read begins
};

// Reads the records that begin before `stop`. `csv` begins with a record; `out` has room for `size`
// bytes and does not overlap it.
CsvRecords extract_csv_records(const uint8_t* csv, size_t size, size_t stop, const CsvTable& table,
                               uint8_t* out);

}  // namespace penstok::kernel
