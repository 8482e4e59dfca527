// Feeds random parts of parquet files, valid and damaged, to what reads them, in buffers of exactly
// the size it may touch; meant to be built with PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_parquet [--rounds N] [--seed N]
//
// It checks that footers, headers, runs, texts and Snappy give what they were made from, and that
// what is cut off is refused or gives the start of that. The Python tests compare whole files with
// pyarrow.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/fuzz_formats.hpp"
#include "tests/fuzz_main.hpp"
#include "text/parquet_metadata.hpp"
#include "text/parquet_values.hpp"
#include "text/snappy.hpp"
#include "text/thrift.hpp"

namespace penstok::kernel {
namespace {

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string little_endian(uint64_t value, size_t num_bytes) {
  std::string bytes;
  for (size_t i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// Whether something was read; no other exception is allowed.
bool accepts(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

// A serialized value of Thrift's compact protocol.
struct Value {
  ThriftType type;
  std::string bytes;
};

Value integer(ThriftType type, int64_t value) {
  const uint64_t sign = value < 0 ? ~uint64_t{0} : 0;
  return {type, varint((static_cast<uint64_t>(value) << 1) ^ sign)};
}
Value i32(int32_t value) { return integer(ThriftType::i32, value); }
Value i64(int64_t value) { return integer(ThriftType::i64, value); }
Value yes_or_no(bool value) { return {value ? ThriftType::yes : ThriftType::no, ""}; }
Value binary(const std::string& bytes) {
  return {ThriftType::binary, varint(bytes.size()) + bytes};
}

class Parts : public Chance {
 public:
  using Chance::Chance;

  bool once_in(size_t times) { return below(times) == 0; }

  std::string text() {
    std::string text;
    for (size_t i = below(below(8) == 0 ? 60 : 6); i > 0; --i) {
      text += pick({"a", "word ", "\u4e16", "0123456789abcdef", "\x01\x02\x03\x04"});
    }
    return text;
  }

  int32_t number() { return static_cast<int32_t>(below(once_in(4) ? size_t{1} << 31 : 200)); }
  int64_t long_number() { return static_cast<int64_t>(below(once_in(4) ? size_t{1} << 62 : 200)); }

  // The fields in any order, and others that no reader knows.
  Value structure(std::vector<std::pair<int, Value>> fields, unsigned depth = 0) {
    for (size_t i = below(3); i > 0 && depth < 4; --i) {
      fields.emplace_back(100 + below(30000), unknown(depth));
    }
    for (size_t i = fields.size(); i > 1; --i) std::swap(fields[i - 1], fields[below(i)]);
    std::string bytes;
    int last = 0;
    for (const auto& [number, value] : fields) {
      const int step = number - last;
      const bool is_short = step > 0 && step < 16 && !once_in(8);
      bytes += static_cast<char>((is_short ? step << 4 : 0) | static_cast<int>(value.type));
      if (!is_short) bytes += i32(number).bytes;
      bytes += value.bytes;
      last = number;
    }
    return {ThriftType::structure, bytes + '\0'};
  }

  Value list(ThriftType type, const std::vector<Value>& items) {
    const bool is_short = items.size() < 15 && !once_in(8);
    const size_t size = is_short ? items.size() : 15;
    std::string bytes(1, static_cast<char>(size << 4 | static_cast<size_t>(type)));
    if (!is_short) bytes += varint(items.size());
    for (const Value& item : items) bytes += item.bytes;
    return {ThriftType::list, bytes};
  }

  std::string damaged_bytes(const std::string& bytes) {
    return damaged(bytes, std::string("\x00\x01\x15\x19\x1C\x7F\x80\xFC\xFF", 9));
  }

 private:
  Value unknown(unsigned depth) {
    const auto type = static_cast<ThriftType>(1 + below(13));
    switch (type) {
      case ThriftType::yes:
      case ThriftType::no: return {type, ""};
      case ThriftType::byte: return {type, "x"};
      case ThriftType::i16: return integer(type, -300);
      case ThriftType::real: return {type, "8 bytes."};
      case ThriftType::uuid: return {type, "16 bytes, always"};
      case ThriftType::binary: return binary(text());
      case ThriftType::structure: return structure({}, depth + 1);
      case ThriftType::list:
      case ThriftType::set: {
        const bool has_structures = once_in(2);
        std::vector<Value> items;
        for (size_t i = below(20); i > 0; --i) {
          items.push_back(has_structures ? structure({}, depth + 1) : Value{type, "\x01"});
        }
        const auto item = has_structures ? ThriftType::structure : ThriftType::yes;
        return {type, list(item, items).bytes};
      }
      default: return i64(long_number() - long_number());
    }
  }
};

auto as_tuple(const ParquetElement& e) {
  return std::tie(e.name, e.type, e.repetition, e.num_children, e.converted_type, e.logical_type);
}
auto as_tuple(const ParquetChunk& c) {
  return std::tie(c.num_rows, c.num_values, c.start, c.compressed_bytes, c.uncompressed_bytes,
                  c.codec);
}
auto as_tuple(const ParquetPage& p) {
  return std::tie(p.header_bytes, p.type, p.uncompressed_bytes, p.compressed_bytes, p.crc,
                  p.has_crc, p.num_values, p.encoding, p.level_encoding, p.num_rows, p.level_bytes,
                  p.repetition_bytes, p.is_compressed);
}

template <class Item>
bool are_equal(const std::vector<Item>& some, const std::vector<Item>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const Item& a, const Item& b) { return as_tuple(a) == as_tuple(b); });
}

Value make_element(Parts& parts, ParquetElement& element) {
  element.name = parts.text();
  std::vector<std::pair<int, Value>> fields = {{4, binary(element.name)}};
  const auto maybe = [&](int number, int32_t& value) {
    if (parts.once_in(2)) fields.emplace_back(number, i32(value = parts.number()));
  };
  maybe(1, element.type);
  maybe(3, element.repetition);
  maybe(5, element.num_children);
  maybe(6, element.converted_type);
  if (parts.once_in(2)) {
    element.logical_type = static_cast<int32_t>(1 + parts.below(16));
    const Value kind{ThriftType::structure, std::string(1, '\0')};
    const Value only{ThriftType::structure,
                     static_cast<char>(ThriftType::structure) + i32(element.logical_type).bytes +
                         kind.bytes + '\0'};
    fields.emplace_back(10, only);
  }
  return parts.structure(fields);
}

Value make_column(Parts& parts, ParquetChunk& chunk) {
  const int64_t data_start = parts.long_number(), dictionary_start = parts.long_number();
  const auto codec = static_cast<int32_t>(parts.below(8));
  chunk = {-1, parts.long_number(), data_start, parts.long_number(), parts.long_number(), codec};
  std::vector<std::pair<int, Value>> fields = {
      {1, i32(6)},
      {4, i32(codec)},
      {5, i64(chunk.num_values)},
      {6, i64(chunk.uncompressed_bytes)},
      {7, i64(chunk.compressed_bytes)},
      {9, i64(data_start)}};
  if (parts.once_in(2)) {
    fields.emplace_back(11, i64(dictionary_start));
    if (dictionary_start > 0) chunk.start = std::min(dictionary_start, data_start);
  }
  return parts.structure({{3, parts.structure(fields)}});
}

bool fuzz_footer(Parts& parts) {
  std::vector<ParquetElement> elements(parts.below(20));
  std::vector<Value> schema;
  for (ParquetElement& element : elements) schema.push_back(make_element(parts, element));
  const size_t num_columns = 1 + parts.below(3), column = parts.below(num_columns);
  std::vector<ParquetChunk> chunks(parts.below(20));
  std::vector<Value> groups;
  int64_t num_rows = 0;
  for (ParquetChunk& chunk : chunks) {
    std::vector<Value> columns;
    for (size_t i = 0; i < num_columns; ++i) {
      ParquetChunk other;
      columns.push_back(make_column(parts, i == column ? chunk : other));
    }
    num_rows += chunk.num_rows = parts.number();
    groups.push_back(parts.structure(
        {{1, parts.list(ThriftType::structure, columns)}, {3, i64(chunk.num_rows)}}));
  }
  const std::string footer =
      parts.structure({{2, parts.list(ThriftType::structure, schema)},
                       {3, i64(num_rows)},
                       {4, parts.list(ThriftType::structure, groups)}}).bytes;
  const Exact exact(footer);
  if (!are_equal(read_parquet_schema(exact.data(), exact.size()), elements)) return false;
  if (!are_equal(read_parquet_chunks(exact.data(), exact.size(), column), chunks)) return false;
  const auto accepted = [&](const Exact& other) {
    const bool has_schema = accepts([&] { read_parquet_schema(other.data(), other.size()); });
    return accepts([&] { read_parquet_chunks(other.data(), other.size(), column); }) || has_schema;
  };
  accepted(Exact(parts.damaged_bytes(footer)));
  return !accepted(Exact(footer + '\0')) &&
         !accepted(Exact(footer.substr(0, parts.below(footer.size()))));
}

bool fuzz_header(Parts& parts) {
  ParquetPage page;
  const size_t kind = parts.below(3);
  const int number = kind == 0 ? 5 : kind == 1 ? 7 : 8;
  page.type = kind == 0 ? 0 : kind == 1 ? 2 : 3;
  page.uncompressed_bytes = parts.number();
  page.compressed_bytes = parts.number();
  page.num_values = parts.number();
  page.encoding = parts.number();
  std::vector<std::pair<int, Value>> inner = {{1, i32(page.num_values)}};
  if (kind < 2) inner.emplace_back(2, i32(page.encoding));
  if (kind == 0) {
    inner.emplace_back(3, i32(page.level_encoding = parts.number()));
    inner.emplace_back(4, i32(parts.number()));
  }
  if (kind == 2) {
    inner.emplace_back(2, i32(parts.number()));
    inner.emplace_back(3, i32(page.num_rows = parts.number()));
    inner.emplace_back(4, i32(page.encoding));
    inner.emplace_back(5, i32(page.level_bytes = parts.number()));
    inner.emplace_back(6, i32(page.repetition_bytes = parts.number()));
    if (parts.once_in(2)) {
      inner.emplace_back(7, yes_or_no(page.is_compressed = parts.once_in(2)));
    }
  }
  std::vector<std::pair<int, Value>> fields = {{1, i32(page.type)},
                                               {2, i32(page.uncompressed_bytes)},
                                               {3, i32(page.compressed_bytes)},
                                               {number, parts.structure(inner)}};
  if (parts.once_in(8)) {
    // One of the fields that must be there is not.
    const size_t num_optional = kind == 2 && inner.size() == 7;
    inner.erase(inner.begin() + parts.below(inner.size() - num_optional));
    fields.back().second = parts.structure(inner);
    const Exact exact(parts.structure(fields).bytes);
    return !accepts([&] { read_parquet_page(exact.data(), exact.size()); });
  }
  if ((page.has_crc = parts.once_in(2))) {
    fields.emplace_back(4, i32(page.crc = parts.number() - parts.number()));
  }
  const std::string header = parts.structure(fields).bytes;
  page.header_bytes = static_cast<int32_t>(header.size());
  const Exact whole(header + parts.text());
  if (as_tuple(read_parquet_page(whole.data(), whole.size())) != as_tuple(page)) return false;
  const Exact cut(header.substr(0, parts.below(header.size())));
  if (accepts([&] { read_parquet_page(cut.data(), cut.size()); })) return false;
  // Structures in structures, or lists in lists; too many would need a large stack.
  const size_t depth = parts.once_in(100) ? 1 << 20 : 40;
  const Exact deep(std::string(depth, parts.once_in(2) ? '\x1C' : '\x19'));
  if (accepts([&] { read_parquet_page(deep.data(), deep.size()); })) return false;
  const Exact other(parts.damaged_bytes(header));
  ParquetPage found;
  return !accepts([&] { found = read_parquet_page(other.data(), other.size()); }) ||
         static_cast<size_t>(found.header_bytes) <= other.size();
}

struct Runs {
  std::vector<uint32_t> numbers;
  std::string bytes;
};

// Runs of both kinds; padding may follow the last number.
Runs make_runs(Parts& parts, unsigned bit_width) {
  Runs runs;
  for (size_t i = parts.below(6); i > 0; --i) {
    const size_t groups = 1 + parts.below(parts.once_in(8) ? 40 : 3);
    const bool is_packed = parts.once_in(2);
    const size_t count = is_packed ? groups * 8 : 1;
    runs.bytes += varint(groups << 1 | is_packed);
    uint64_t bits = 0;
    unsigned num_bits = 0;
    for (size_t j = 0; j < count; ++j) {
      const uint64_t number = parts.below(size_t{1} << bit_width);
      const size_t times = is_packed ? 1 : groups;
      runs.numbers.insert(runs.numbers.end(), times, static_cast<uint32_t>(number));
      bits |= number << num_bits;
      for (num_bits += bit_width; num_bits >= 8; num_bits -= 8, bits >>= 8) {
        runs.bytes += static_cast<char>(bits);
      }
    }
    if (num_bits > 0) runs.bytes += static_cast<char>(bits);
  }
  const size_t padding = parts.below(1 + std::min(runs.numbers.size(), size_t{7}));
  runs.numbers.resize(runs.numbers.size() - padding);
  return runs;
}

bool fuzz_runs(Parts& parts) {
  const auto bit_width = static_cast<unsigned>(parts.below(33));
  const Runs runs = make_runs(parts, bit_width);
  const auto decode = [&](const std::string& bytes, uint32_t limit, size_t count) {
    const Exact exact(bytes);
    const std::unique_ptr<uint32_t[]> out(new uint32_t[count]);
    decode_runs(exact.data(), exact.size(), bit_width, limit, out.get(), count);
    return std::vector<uint32_t>(out.get(), out.get() + count);
  };
  const size_t count = runs.numbers.size();
  const uint32_t largest = count ? *std::max_element(runs.numbers.begin(), runs.numbers.end()) : 0;
  const uint32_t none = ~uint32_t{0};
  if (largest < none && decode(runs.bytes, largest + 1, count) != runs.numbers) return false;
  if (count > 0 && accepts([&] { decode(runs.bytes, largest, count); })) return false;
  if (accepts([&] { decode(runs.bytes, none, count + 8); })) return false;
  const auto limit = static_cast<uint32_t>(1 + parts.below(largest + size_t{1}));
  std::vector<uint32_t> found;
  accepts([&] { found = decode(parts.damaged_bytes(runs.bytes), limit, count); });
  return std::all_of(found.begin(), found.end(), [&](uint32_t number) { return number < limit; });
}

bool fuzz_texts(Parts& parts) {
  std::string plain, joined;
  std::vector<int64_t> expected;
  size_t longest = 0;
  for (size_t i = parts.below(12); i > 0; --i) {
    const std::string text = parts.text();
    plain += little_endian(text.size(), 4) + text;
    joined += text;
    longest = std::max(longest, text.size());
    expected.push_back(static_cast<int64_t>(joined.size()));
  }
  const size_t most = longest - (longest > 0 && parts.once_in(20));
  if (parts.once_in(4)) plain = parts.damaged_bytes(plain), expected.clear();
  // In pieces, each with what the last one left.
  std::string piece, written;
  std::vector<int64_t> ends;
  size_t num_open = 0;
  const auto decode = [&] {
    const Exact exact(piece), out(written + std::string(piece.size(), 'x'));
    const size_t capacity = parts.below(6);
    const std::unique_ptr<int64_t[]> found(new int64_t[capacity]);
    PlainPosition position{0, written.size(), num_open, 0};
    copy_plain_texts(exact.data(), exact.size(), out.data(), most, found.get(), capacity, position);
    ends.insert(ends.end(), found.get(), found.get() + position.num_texts);
    piece.erase(0, position.from);
    written = out.text(position.to);
    num_open = position.num_open;
  };
  const bool is_read = accepts([&] {
    for (size_t at = 0; at < plain.size() || piece.size() >= (num_open > 0 ? 1 : 4);) {
      const size_t size = parts.below(1 + parts.below(40));
      if (at < plain.size()) piece += plain.substr(at, size);
      at += size;
      decode();
    }
  });
  if (expected.empty()) return true;
  if (most < longest) return !is_read;
  return is_read && piece.empty() && num_open == 0 && written == joined && ends == expected;
}

bool fuzz_dictionary(Parts& parts) {
  std::vector<std::string> texts(parts.below(9));
  std::string joined, expected;
  std::vector<int64_t> offsets = {0}, expected_ends;
  for (std::string& text : texts) {
    joined += text = parts.text();
    offsets.push_back(static_cast<int64_t>(joined.size()));
  }
  std::vector<uint32_t> indexes(texts.empty() ? 0 : parts.below(20));
  for (uint32_t& index : indexes) {
    index = static_cast<uint32_t>(parts.below(texts.size()));
    expected += texts[index];
    expected_ends.push_back(static_cast<int64_t>(expected.size()));
  }
  const auto gather = [&](size_t room) {
    const Exact data(joined), out(room);
    const std::unique_ptr<int64_t[]> ends(new int64_t[indexes.size()]);
    const TextList list{data.data(), data.size(), offsets.data(), offsets.size()};
    gather_texts(list, indexes.data(), indexes.size(), out.data(), room, ends.get());
    if (indexes.empty()) return expected.empty();
    return out.text(static_cast<size_t>(ends[indexes.size() - 1])) == expected &&
           std::equal(expected_ends.begin(), expected_ends.end(), ends.get());
  };
  if (!gather(expected.size())) return false;
  if (!expected.empty() && accepts([&] { gather(parts.below(expected.size())); })) return false;
  const auto wrong = static_cast<int64_t>(parts.below(joined.size() + 40)) - 20;
  offsets[parts.below(offsets.size())] = parts.once_in(4) ? wrong * (int64_t{1} << 40) : wrong;
  if (!indexes.empty() && parts.once_in(2)) {
    indexes[parts.below(indexes.size())] = static_cast<uint32_t>(parts.below(30) - 10);
  }
  accepts([&] { gather(expected.size()); });
  return true;
}

// Data that were written as Snappy, with elements of every kind, and what they stand for.
struct Compressed {
  std::string text;
  std::string bytes;
  size_t farthest = 0;
};

Compressed compress(Parts& parts) {
  Compressed made;
  for (size_t i = parts.below(12); i > 0; --i) {
    if (made.text.empty() || parts.once_in(3)) {
      std::string literal = parts.text() + "x";
      if (parts.once_in(100)) literal += std::string(parts.below(70000), 'y');
      const size_t length = literal.size() - 1;
      size_t extra = length < 60 ? 0 : length < 256 ? 1 : length < 65536 ? 2 : 3;
      if (parts.once_in(4)) extra = std::min(extra + 1, size_t{4});
      made.bytes += static_cast<char>((extra == 0 ? length : 59 + extra) << 2);
      made.bytes += little_endian(length, extra) + literal;
      made.text += literal;
      continue;
    }
    const size_t farthest = parts.once_in(2) ? 20 : 70000;
    const size_t offset = 1 + parts.below(std::min(made.text.size(), farthest));
    made.farthest = std::max(made.farthest, offset);
    size_t length = 1 + parts.below(64);
    if (offset < 2048 && length >= 4 && length < 12 && !parts.once_in(4)) {
      made.bytes += static_cast<char>(1 | (length - 4) << 2 | offset >> 8 << 5);
      made.bytes += static_cast<char>(offset);
    } else {
      const bool is_wide = offset > 65535 || parts.once_in(4);
      made.bytes += static_cast<char>((is_wide ? 3 : 2) | (length - 1) << 2);
      made.bytes += little_endian(offset, is_wide ? 4 : 2);
    }
    for (; length > 0; --length) made.text += made.text[made.text.size() - offset];
  }
  return made;
}

// Decompresses pieces of the data to a room of which only the last `window` bytes are kept.
std::string decompress(Parts& parts, const std::string& bytes, size_t window) {
  std::string text, left;
  size_t num_open = 0;
  for (size_t start = 0; start < bytes.size();) {
    const size_t size = parts.once_in(2) ? bytes.size() : 1 + parts.below(40);
    left += bytes.substr(start, size);
    start += size;
    while (true) {
      const std::string kept = text.substr(text.size() - std::min(text.size(), window));
      const Exact data(left), out(kept.size() + 80 + parts.below(parts.once_in(2) ? 100 : 200000));
      if (!kept.empty()) std::memcpy(out.data(), kept.data(), kept.size());
      const SnappyPosition at = decompress_snappy(data.data(), data.size(), out.data(), out.size(),
                                                  {0, kept.size(), num_open});
      if (at.to == kept.size() && at.from == 0) break;
      text += out.text(at.to).substr(kept.size());
      left.erase(0, at.from);
      num_open = at.num_open;
    }
  }
  if (!left.empty() || num_open > 0) throw std::invalid_argument("the data are cut short");
  return text;
}

bool fuzz_snappy(Parts& parts) {
  const Compressed made = compress(parts);
  if (decompress(parts, made.bytes, made.farthest) != made.text) return false;
  // If less is kept than an element goes back, it is refused or has enough before it in the room.
  const std::string cut = made.bytes.substr(0, parts.below(made.bytes.size() + 1));
  std::string start;
  accepts([&] { start = decompress(parts, cut, parts.below(made.farthest + 1)); });
  if (made.text.substr(0, start.size()) != start) return false;
  accepts([&] { decompress(parts, parts.damaged_bytes(made.bytes), 70000); });
  return true;
}

bool round(uint64_t seed) {
  Parts parts(seed);
  return fuzz_footer(parts) && fuzz_header(parts) && fuzz_runs(parts) && fuzz_texts(parts) &&
         fuzz_dictionary(parts) && fuzz_snappy(parts);
}

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_rounds(argc, argv, 20000, penstok::kernel::round);
}
