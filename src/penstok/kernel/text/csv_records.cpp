#include "text/csv_records.hpp"

namespace penstok::kernel {
namespace {

// Reads one record into `text`.
class RecordReader {
 public:
  RecordReader(const uint8_t* at, const uint8_t* end, const CsvTable& table, uint8_t* text)
      : at_(at), end_(end), table_(table), text_(text), text_end_(text), position_(at) {}

  // Returns where the next record begins.
  const uint8_t* read() {
    size_t num_fields = 0;
    do {
      read_field(num_fields == table_.column);
      ++num_fields;
    } while (takes_delimiter());
    if (code_ == CsvCode::ok && num_fields != table_.num_columns) code_ = CsvCode::wrong_number;
    return at_ == end_ ? end_ : at_ + 1;
  }

  CsvCode code() const { return code_; }
  const uint8_t* position() const { return position_; }
  uint8_t* text_end() const { return code_ == CsvCode::ok ? text_end_ : text_; }

 private:
  void read_field(bool wanted) {
    if (at_ != end_ && *at_ == '"') {
      read_quoted(wanted);
    } else {
      const uint8_t* const from = at_;
      at_ = find_either(at_, end_, table_.delimiter, '\n');
      if (wanted) put(from, before_line_end(from));
    }
  }

  void read_quoted(bool wanted) {
    const uint8_t* const opening = at_++;
    for (;;) {
      const uint8_t* const from = at_;
      at_ = find_byte(at_, end_, '"');
      if (at_ == end_) {
        refuse(CsvCode::not_closed, opening);
        return;
      }
      ++at_;
      const bool is_doubled = at_ != end_ && *at_ == '"';
      if (wanted) put(from, is_doubled ? at_ : at_ - 1);
      if (!is_doubled) break;
      ++at_;
    }
    const uint8_t* const behind = at_;
    if (at_ == end_ || *at_ == table_.delimiter || *at_ == '\n') return;
    at_ = find_either(at_, end_, table_.delimiter, '\n');
    if (before_line_end(behind) != behind) refuse(CsvCode::behind_quote, behind);
  }

  // The end of a field that was read from `from` to `at_`: a carriage return before a line feed
  // belongs to the line end.
  const uint8_t* before_line_end(const uint8_t* from) const {
    const bool has_return = at_ != end_ && *at_ == '\n' && at_ != from && at_[-1] == '\r';
    return has_return ? at_ - 1 : at_;
  }

  bool takes_delimiter() {
    if (at_ == end_ || *at_ != table_.delimiter) return false;
    ++at_;
    return true;
  }

  void put(const uint8_t* from, const uint8_t* to) {
    std::memcpy(text_end_, from, static_cast<size_t>(to - from));
    text_end_ += to - from;
  }

  void refuse(CsvCode code, const uint8_t* position) {
    if (code_ != CsvCode::ok) return;
    code_ = code;
    position_ = position;
  }

  const uint8_t* at_;
  const uint8_t* const end_;
  const CsvTable& table_;
  uint8_t* const text_;
  uint8_t* text_end_;
  CsvCode code_ = CsvCode::ok;
  const uint8_t* position_;
};

// The length of the line end at `at`; 0 if there is none.
PENSTOK_INLINE size_t line_end_bytes(const uint8_t* at, const uint8_t* end) {
  if (*at == '\n') return 1;
  return *at == '\r' && end - at >= 2 && at[1] == '\n' ? 2 : 0;
}

}  // namespace

CsvRecords extract_csv_records(const uint8_t* csv, size_t size, size_t stop, const CsvTable& table,
                               uint8_t* out) {
  CsvRecords records;
  const uint8_t* const end = csv + size;
  const uint8_t* at = csv;
  uint8_t* text = out;
  while (at != end && static_cast<size_t>(at - csv) < stop) {
    if (const size_t blank = line_end_bytes(at, end); blank != 0) {
      at += blank;
      ++records.num_blank;
      continue;
    }
    RecordReader reader(at, end, table, text);
    records.records.push_back(at - csv);
    at = reader.read();
    records.positions.push_back(reader.position() - csv);
    records.codes.push_back(static_cast<uint8_t>(reader.code()));
    records.starts.push_back(text - out);
    text = reader.text_end();
    records.ends.push_back(text - out);
  }
  records.consumed = static_cast<size_t>(at - csv);
  return records;
}

}  // namespace penstok::kernel
