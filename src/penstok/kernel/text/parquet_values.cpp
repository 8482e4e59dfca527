#include "text/parquet_values.hpp"

#include <algorithm>
#include <stdexcept>

namespace penstok::kernel {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr unsigned kMaxBitWidth = 32;
constexpr size_t kPackedTogether = 8;

uint64_t load_up_to_8(const uint8_t* from, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, from, std::min(size, sizeof value));
  return value;
}

// Reads a number of seven bits per byte.
uint32_t read_run_header(const uint8_t*& at, const uint8_t* end) {
  uint32_t value = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    if (at == end) throw std::invalid_argument("there are fewer values than the page should have");
    const uint8_t byte = *at++;
    value |= static_cast<uint32_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  throw std::invalid_argument("the length of a run is damaged");
}

void check(uint32_t value, uint32_t limit) {
  if (value >= limit) throw std::invalid_argument("a level or an index is too large");
}

}  // namespace

void copy_plain_texts(const uint8_t* data, size_t end, uint8_t* out, size_t max_bytes,
                      int64_t* ends, size_t capacity, PlainPosition& position) {
  auto [from, to, num_open, num_texts] = position;
  while (num_texts < capacity) {
    if (num_open == 0) {
      if (end - from < kLengthBytes) break;
      uint32_t length;
      std::memcpy(&length, data + from, kLengthBytes);
      if (length > max_bytes) throw std::invalid_argument("a text is too long");
      from += kLengthBytes;
      num_open = length;
    }
    const size_t size = std::min(num_open, end - from);
    std::memcpy(out + to, data + from, size);
    from += size;
    to += size;
    num_open -= size;
    if (num_open > 0) break;
    ends[num_texts++] = static_cast<int64_t>(to);
  }
  position = {from, to, num_open, num_texts};
}

void decode_runs(const uint8_t* data, size_t size, unsigned bit_width, uint32_t limit,
                 uint32_t* out, size_t count) {
  if (bit_width > kMaxBitWidth) throw std::invalid_argument("numbers of more than 32 bits");
  const uint64_t mask = bits_below(bit_width);
  const size_t value_bytes = (bit_width + 7) / 8;
  const uint8_t* at = data;
  const uint8_t* const end = data + size;
  for (size_t done = 0; done < count;) {
    const uint32_t header = read_run_header(at, end);
    const auto left = static_cast<size_t>(end - at);
    const bool is_packed = header & 1;
    const size_t num_bytes = is_packed ? static_cast<size_t>(header >> 1) * bit_width : value_bytes;
    if (header < 2 || num_bytes > left) throw std::invalid_argument("a run is damaged");
    if (is_packed) {
      const size_t length = std::min((header >> 1) * kPackedTogether, count - done);
      for (size_t i = 0; i < length; ++i) {
        const size_t bit = i * bit_width, byte = bit / 8;
        const auto value =
            static_cast<uint32_t>(load_up_to_8(at + byte, num_bytes - byte) >> bit % 8 & mask);
        check(value, limit);
        out[done++] = value;
      }
    } else {
      const size_t length = std::min<size_t>(header >> 1, count - done);
      const auto value = static_cast<uint32_t>(load_up_to_8(at, value_bytes));
      check(value, limit);
      std::fill_n(out + done, length, value);
      done += length;
    }
    at += num_bytes;
  }
}

void gather_texts(const TextList& texts, const uint32_t* indexes, size_t count, uint8_t* out,
                  size_t out_bytes, int64_t* ends) {
  size_t to = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = indexes[i];
    if (index + 1 >= texts.num_offsets) throw std::invalid_argument("an index is too large");
    const int64_t start = texts.offsets[index], end = texts.offsets[index + 1];
    if (start < 0 || end < start || static_cast<size_t>(end) > texts.size ||
        static_cast<size_t>(end - start) > out_bytes - to) {
      throw std::invalid_argument("a text is outside its buffer");
    }
    std::memcpy(out + to, texts.data + start, static_cast<size_t>(end - start));
    to += static_cast<size_t>(end - start);
    ends[i] = static_cast<int64_t>(to);
  }
}

}  // namespace penstok::kernel
