// Decompresses Snappy's raw format, which many parquet files have.
// https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// Fills out[0:size]. Throws std::invalid_argument if the data are damaged or have another size.
void decompress_snappy(const uint8_t* data, size_t data_bytes, uint8_t* out, size_t size);

}  // namespace penstok::kernel
