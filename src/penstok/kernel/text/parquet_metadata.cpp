#include "text/parquet_metadata.hpp"

#include "text/thrift.hpp"

namespace penstok::kernel {
namespace {

constexpr int32_t kByteArray = 6;
// Elements of a schema, and row groups: a footer may claim millions in a few bytes each.
constexpr size_t kMaxItems = 1 << 16;

void require(bool condition, const char* otherwise) {
  if (!condition) throw std::invalid_argument(otherwise);
}

ParquetElement read_element(ThriftReader& reader) {
  ParquetElement element;
  bool has_name = false;
  reader.read_struct([&](int64_t id, ThriftType type) {
    std::string_view name;
    switch (id) {
      case 1: return reader.read(type, element.type);
      case 3: return reader.read(type, element.repetition);
      case 4:
        if (!reader.read(type, name)) return false;
        element.name = name;
        return has_name = true;
      case 5: return reader.read(type, element.num_children);
      case 6: return reader.read(type, element.converted_type);
      case 10:
        if (type != ThriftType::structure) return false;
        // A union: the number of its only field says which type it is.
        reader.read_struct([&](int64_t kind, ThriftType) {
          element.logical_type = static_cast<int32_t>(kind);
          return false;
        });
        return true;
      default: return false;
    }
  });
  require(has_name, "an element of the schema has no name");
  return element;
}

// Returns the type of the values.
int32_t read_column_metadata(ThriftReader& reader, ParquetChunk& chunk) {
  int32_t physical = -1, codec = -1;
  int64_t data_start = -1, dictionary_start = 0;
  reader.read_struct([&](int64_t id, ThriftType type) {
    switch (id) {
      case 1: return reader.read(type, physical);
      case 4: return reader.read(type, codec);
      case 5: return reader.read(type, chunk.num_values);
      case 6: return reader.read(type, chunk.uncompressed_bytes);
      case 7: return reader.read(type, chunk.compressed_bytes);
      case 9: return reader.read(type, data_start);
      case 11: return reader.read(type, dictionary_start);
      default: return false;
    }
  });
  // Some writers leave out where the dictionary is, or write 0.
  const bool has_dictionary = dictionary_start > 0 && dictionary_start < data_start;
  chunk.start = has_dictionary ? dictionary_start : data_start;
  chunk.codec = codec;
  return physical;
}

void read_column(ThriftReader& reader, ParquetChunk& chunk) {
  bool is_here = true;
  int32_t physical = -1;
  reader.read_struct([&](int64_t id, ThriftType type) {
    if (id == 3 && type == ThriftType::structure) {
      physical = read_column_metadata(reader, chunk);
      return true;
    }
    // In another file, or encrypted.
    if (id == 1 || id == 8 || id == 9) is_here = false;
    return false;
  });
  require(is_here && physical == kByteArray, "the column is encrypted, elsewhere or not text");
}

ParquetChunk read_group(ThriftReader& reader, size_t column) {
  ParquetChunk chunk;
  reader.read_struct([&](int64_t id, ThriftType type) {
    if (id == 3) return reader.read(type, chunk.num_rows);
    if (id != 1 || type != ThriftType::list) return false;
    const ThriftList columns = reader.read_list();
    require(columns.type == ThriftType::structure && column < columns.size,
            "a row group has too few columns");
    for (size_t i = 0; i < columns.size; ++i) {
      if (i == column) {
        read_column(reader, chunk);
      } else {
        reader.skip(columns.type);
      }
    }
    return true;
  });
  require(chunk.num_rows >= 0 && chunk.num_values >= 0 && chunk.start >= 0 &&
              chunk.compressed_bytes >= 0 && chunk.uncompressed_bytes >= 0 && chunk.codec >= 0,
          "a row group or its column has no size or position");
  return chunk;
}

// Calls on_item() for every structure in the list with this number; returns the number of rows of
// the file.
template <class OnItem>
int64_t read_footer_list(ThriftReader& reader, int64_t number, const OnItem& on_item) {
  bool is_found = false;
  int64_t num_rows = -1;
  reader.read_struct([&](int64_t id, ThriftType type) {
    require(id != 8, "the file is encrypted");
    if (id == 3) return reader.read(type, num_rows);
    if (id != number || type != ThriftType::list) return false;
    // Repeated lists would evade the limit of each.
    require(!is_found, "a list is repeated");
    const ThriftList list = reader.read_list();
    require(list.size == 0 || list.type == ThriftType::structure, "a list has the wrong type");
    require(list.size <= kMaxItems, "a list is very long");
    for (size_t i = 0; i < list.size; ++i) on_item();
    return is_found = true;
  });
  require(is_found && num_rows >= 0, "the footer is not complete");
  require(reader.is_at_end(), "something follows the footer");
  return num_rows;
}

}  // namespace

std::vector<ParquetElement> read_parquet_schema(const uint8_t* footer, size_t size) {
  ThriftReader reader(footer, size);
  std::vector<ParquetElement> elements;
  read_footer_list(reader, 2, [&] { elements.push_back(read_element(reader)); });
  return elements;
}

std::vector<ParquetChunk> read_parquet_chunks(const uint8_t* footer, size_t size, size_t column) {
  ThriftReader reader(footer, size);
  std::vector<ParquetChunk> chunks;
  int64_t num_rows_left =
      read_footer_list(reader, 4, [&] { chunks.push_back(read_group(reader, column)); });
  // A damaged list may be shorter than it was.
  for (const ParquetChunk& chunk : chunks) {
    require(chunk.num_rows <= num_rows_left, "the row groups have more rows than the file");
    num_rows_left -= chunk.num_rows;
  }
  require(num_rows_left == 0, "the row groups have fewer rows than the file");
  return chunks;
}

ParquetPage read_parquet_page(const uint8_t* data, size_t size) {
  ThriftReader reader(data, size);
  ParquetPage page;
  int32_t kind = -1, ignored = 0;
  unsigned num_found = 0, num_required = 0;
  reader.read_struct([&](int64_t id, ThriftType type) {
    if (id == 1) return reader.read(type, page.type);
    if (id == 2) return reader.read(type, page.uncompressed_bytes);
    if (id == 3) return reader.read(type, page.compressed_bytes);
    if (id == 4) return page.has_crc = reader.read(type, page.crc);
    if (type != ThriftType::structure || (id != 5 && id != 7 && id != 8)) return false;
    require(kind < 0, "a page has two headers");
    // A data page, a dictionary, or a data page of version 2, with the first fields required.
    kind = id == 5 ? 0 : id == 7 ? 2 : 3;
    num_required = id == 5 ? 4 : id == 7 ? 2 : 6;
    int32_t* const numbers[3][6] = {
        {&page.num_values, &page.encoding, &page.level_encoding, &ignored},
        {&page.num_values, &page.encoding},
        {&page.num_values, &ignored, &page.num_rows, &page.encoding, &page.level_bytes,
         &page.repetition_bytes}};
    const auto& fields = numbers[id == 5 ? 0 : id == 7 ? 1 : 2];
    reader.read_struct([&](int64_t inner, ThriftType inner_type) {
      if (inner == 7 && id == 8) return reader.read(inner_type, page.is_compressed);
      if (inner < 1 || inner > num_required) return false;
      const bool is_read = reader.read(inner_type, *fields[inner - 1]);
      num_found += is_read;
      return is_read;
    });
    return true;
  });
  require(kind >= 0 && page.type == kind && num_found == num_required &&
              page.uncompressed_bytes >= 0 && page.compressed_bytes >= 0 && page.num_values >= 0,
          "the header of a page is not complete");
  page.header_bytes = static_cast<int32_t>(reader.position() - data);
  return page;
}

}  // namespace penstok::kernel
