// Decodes the values of a parquet column of texts: their lengths, levels and dictionary indexes.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// How far texts that follow their lengths (PLAIN) are decoded. They arrive in pieces, and a text may
// be in several.
struct PlainPosition {
  size_t from;       // the next byte of the piece
  size_t to;         // the end of what was written
  size_t num_open;   // how many bytes of the last text are still missing
  size_t num_texts;  // how many texts were completed
};

// Copies texts from data[from:end] to `out` without their lengths, and writes where each ends, until
// `capacity` ends are written or less than a length is left. Throws std::invalid_argument if a text
// has more than `max_bytes`. `out` has room for the rest of the piece.
void copy_plain_texts(const uint8_t* data, size_t end, uint8_t* out, size_t max_bytes,
                      int64_t* ends, size_t capacity, PlainPosition& position);

// Decodes runs of numbers (RLE and bit-packed) until `count` are written. Throws
// std::invalid_argument if there are fewer, or one is not below `limit`.
void decode_runs(const uint8_t* data, size_t size, unsigned bit_width, uint32_t limit,
                 uint32_t* out, size_t count);

// Texts one after the other: text i is data[offsets[i]:offsets[i + 1]].
struct TextList {
  const uint8_t* data;
  size_t size;
  const int64_t* offsets;
  size_t num_offsets;
};

// Copies the text of every index to `out`, and writes where each copy ends. Throws
// std::invalid_argument if an index or an offset is wrong, or if `out_bytes` are too few.
void gather_texts(const TextList& texts, const uint32_t* indexes, size_t count, uint8_t* out,
                  size_t out_bytes, int64_t* ends);

}  // namespace penstok::kernel
