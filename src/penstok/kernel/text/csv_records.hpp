// Extracts the text of one column from every record of CSV into one buffer.
//
// The dialect is that of RFC 4180: a field is quoted if its first byte is a quote; inside, two
// quotes mean one, and delimiters and line ends are text. A record ends with a line feed (a
// carriage return before it is dropped) or at the end of the buffer. Empty lines are not records.
#pragma once

#include <vector>

#include "text/csv_bytes.hpp"

namespace penstok::kernel {

// The result of reading a record. The values are part of the binding: readers/csv has the same.
enum class CsvCode : uint8_t { ok, wrong_number, behind_quote, not_closed };

struct CsvTable {
  uint8_t delimiter;
  size_t column;       // the one to extract
  size_t num_columns;  // more than `column`
};

// One entry per record, valid or not. `records` and `positions` are offsets in the CSV, `starts`
// and `ends` are offsets in the text; the text of an invalid record is empty. A position is that of
// the first invalid byte after a closing quote, of the quote that is not closed, or otherwise of
// the record.
struct CsvRecords {
  std::vector<int64_t> records, positions, starts, ends;
  std::vector<uint8_t> codes;
  size_t num_blank = 0;
  size_t consumed = 0;  // offset of the first record that was not read
};

// Reads the records that begin before `stop`. `csv` begins with a record; `out` holds `size` bytes
// and does not overlap it.
CsvRecords extract_csv_records(const uint8_t* csv, size_t size, size_t stop, const CsvTable& table,
                               uint8_t* out);

}  // namespace penstok::kernel
