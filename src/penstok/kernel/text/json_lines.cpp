#include "text/json_lines.hpp"

namespace penstok::kernel {

JsonRecords extract_json_lines(const uint8_t* json, size_t size, size_t stop, const JsonPath& path,
                               uint8_t* out) {
  JsonRecords records;
  const uint8_t* const end = json + size;
  const uint8_t* at = json;
  uint8_t* text = out;
  while (at != end && static_cast<size_t>(at - json) < stop) {
    const uint8_t* const line = at;
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\r')) ++at;
    if (at == end || *at == '\n') {
      ++records.num_blank;
    } else {
      const JsonField field = read_json_line(at, end, path, text);
      records.lines.push_back(line - json);
      records.positions.push_back(field.position - json);
      records.codes.push_back(static_cast<uint8_t>(field.code));
      records.starts.push_back(text - out);
      text = field.text_end;
      records.ends.push_back(text - out);
      records.num_lone_surrogates += field.num_lone_surrogates;
    }
    if (at != end) ++at;  // the line feed
  }
  records.consumed = static_cast<size_t>(at - json);
  return records;
}

}  // namespace penstok::kernel
