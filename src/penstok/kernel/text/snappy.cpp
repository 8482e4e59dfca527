#include "text/snappy.hpp"

#include <stdexcept>

namespace penstok::kernel {
namespace {

// Short copies write this many bytes at once if there is room; the next ones overwrite the rest.
constexpr size_t kStep = 16;
// The largest length of a literal in its tag; above it, the tag has the number of bytes that follow.
constexpr size_t kMaxTagLength = 60;

void require(bool condition) {
  if (!condition) throw std::invalid_argument("the compressed data are damaged");
}

struct Input {
  const uint8_t* at;
  const uint8_t* end;

  size_t left() const { return static_cast<size_t>(end - at); }

  size_t read(size_t num_bytes) {
    require(num_bytes <= left());
    uint32_t value = 0;
    std::memcpy(&value, at, num_bytes);
    at += num_bytes;
    return value;
  }

  uint64_t read_varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      const size_t byte = read(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw std::invalid_argument("the size of the compressed data is damaged");
  }
};

// Copies text that was written before, which may overlap what it is copied to.
PENSTOK_INLINE void copy_back(uint8_t* to, size_t offset, size_t length, size_t room) {
  const uint8_t* from = to - offset;
  if (PENSTOK_LIKELY(offset >= kStep && room >= length + kStep)) {
    for (size_t i = 0; i < length; i += kStep) std::memcpy(to + i, from + i, kStep);
  } else {
    for (size_t i = 0; i < length; ++i) to[i] = from[i];
  }
}

}  // namespace

void decompress_snappy(const uint8_t* data, size_t data_bytes, uint8_t* out, size_t size) {
  Input input{data, data + data_bytes};
  require(input.read_varint() == size);
  size_t done = 0;
  while (input.left() > 0) {
    const size_t tag = input.read(1);
    const size_t room = size - done;
    if ((tag & 3) == 0) {
      size_t length = (tag >> 2) + 1;
      if (length > kMaxTagLength) length = input.read(length - kMaxTagLength) + 1;
      require(length <= input.left() && length <= room);
      if (PENSTOK_LIKELY(length <= kStep && input.left() >= kStep && room >= kStep)) {
        std::memcpy(out + done, input.at, kStep);
      } else {
        std::memcpy(out + done, input.at, length);
      }
      input.at += length;
      done += length;
      continue;
    }
    size_t length = (tag >> 2) + 1, offset = 0;
    if ((tag & 3) == 1) {
      length = (tag >> 2 & 7) + 4;
      offset = (tag >> 5 << 8) | input.read(1);
    } else {
      offset = input.read((tag & 3) == 2 ? 2 : 4);
    }
    require(offset > 0 && offset <= done && length <= room);
    copy_back(out + done, offset, length, room);
    done += length;
  }
  require(done == size);
}

}  // namespace penstok::kernel
