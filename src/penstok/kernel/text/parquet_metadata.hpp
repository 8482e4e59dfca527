// Reads the footer of a parquet file and the headers of its pages: what is needed to read a column.
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#pragma once

#include <string>
#include <vector>

#include "bytes.hpp"

namespace penstok::kernel {

// One element of the schema, which lists a tree depth first. Numbers are those of parquet.thrift,
// -1 if there is none.
struct ParquetElement {
  std::string name;
  int32_t type = -1;
  int32_t repetition = -1;
  int32_t num_children = 0;
  int32_t converted_type = -1;
  int32_t logical_type = -1;
};

// One column in one row group. `start` is where its first page begins in the file.
struct ParquetChunk {
  int64_t num_rows = -1;
  int64_t num_values = -1;
  int64_t start = -1;
  int64_t compressed_bytes = -1;
  int64_t uncompressed_bytes = -1;
  int64_t codec = -1;
};

struct ParquetPage {
  int32_t header_bytes = -1;
  int32_t type = -1;
  int32_t uncompressed_bytes = -1;
  int32_t compressed_bytes = -1;
  int32_t crc = 0;
  bool has_crc = false;
  int32_t num_values = -1;
  int32_t encoding = -1;
  int32_t level_encoding = -1;  // of version 1
  // Of version 2.
  int32_t num_rows = -1;
  int32_t level_bytes = -1;
  int32_t repetition_bytes = -1;
  bool is_compressed = true;
};

// These throw std::invalid_argument if something is damaged, missing or encrypted, or if the data
// end too early.
std::vector<ParquetElement> read_parquet_schema(const uint8_t* footer, size_t size);
std::vector<ParquetChunk> read_parquet_chunks(const uint8_t* footer, size_t size, size_t column);
ParquetPage read_parquet_page(const uint8_t* data, size_t size);

}  // namespace penstok::kernel
