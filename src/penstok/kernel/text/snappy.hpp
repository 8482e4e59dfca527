// Decompresses Snappy's raw format, which many parquet files have.
// https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// The position of a decompressor: the next byte to read and to write, and how many bytes of a literal
// that has begun are missing.
struct SnappyPosition {
  size_t from = 0;
  size_t to = 0;
  size_t num_open = 0;
};

// Continues to decompress elements, which follow the size at the start of the data, from data to
// out, until it needs more data or more room. What is before `to` in `out` may be copied.
// Throws std::invalid_argument if an element refers to text before that, or the position is wrong.
SnappyPosition decompress_snappy(const uint8_t* data, size_t data_bytes, uint8_t* out,
                                 size_t out_bytes, SnappyPosition position);

}  // namespace penstok::kernel
