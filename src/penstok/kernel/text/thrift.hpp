// Reads Thrift's compact protocol, in which parquet stores its metadata.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
#pragma once

#include <stdexcept>
#include <string_view>

#include "bytes.hpp"

namespace penstok::kernel {

// In the order of the numbers that stand for them, from 0 on.
enum class ThriftType : uint8_t {
  stop, yes, no, byte, i16, i32, i64, real, binary, list, set, map, structure, uuid
};

struct ThriftList {
  ThriftType type;
  size_t size;
};

// A position in a serialized structure. Nothing is read past the end; what is damaged or ends too
// early throws std::invalid_argument.
class ThriftReader {
 public:
  ThriftReader(const uint8_t* begin, size_t size) : at_(begin), end_(begin + size) {}

  const uint8_t* position() const { return at_; }
  bool is_at_end() const { return at_ == end_; }

  // Calls on_field(id, type) for every field of a structure. It returns whether it has read the
  // value; if not, the value is skipped.
  template <class OnField>
  void read_struct(const OnField& on_field) {
    if (depth_ == kMaxDepth) throw std::invalid_argument("structures are nested too deeply");
    ++depth_;
    int64_t id = 0;
    while (true) {
      const uint8_t head = next();
      const auto type = static_cast<ThriftType>(head & 15);
      if (type == ThriftType::stop) break;
      id = head >> 4 ? id + (head >> 4) : read_integer();
      if (id != static_cast<int16_t>(id)) throw std::invalid_argument("a field has a wrong number");
      if (!on_field(id, type)) skip(type);
    }
    --depth_;
  }

  bool read(ThriftType type, int32_t& out) {
    if (type != ThriftType::i32) return false;
    const int64_t value = read_integer();
    if (value != static_cast<int32_t>(value)) throw std::invalid_argument("a number is too large");
    out = static_cast<int32_t>(value);
    return true;
  }

  bool read(ThriftType type, int64_t& out) {
    if (type != ThriftType::i64) return false;
    out = read_integer();
    return true;
  }

  bool read(ThriftType type, bool& out) {  // the value of a field, not of a list
    if (type != ThriftType::yes && type != ThriftType::no) return false;
    out = type == ThriftType::yes;
    return true;
  }

  bool read(ThriftType type, std::string_view& out) {
    if (type != ThriftType::binary) return false;
    const uint64_t size = read_varint();
    out = {reinterpret_cast<const char*>(take(size)), static_cast<size_t>(size)};
    return true;
  }

  ThriftList read_list() {
    const uint8_t head = next();
    const uint64_t size = head >> 4 == 15 ? read_varint() : head >> 4;
    // Every item has a byte or more.
    if (size > left()) throw std::invalid_argument("a list is longer than the rest of the data");
    return {static_cast<ThriftType>(head & 15), static_cast<size_t>(size)};
  }

  void skip(ThriftType type) {
    switch (type) {
      case ThriftType::yes:
      case ThriftType::no: return;
      case ThriftType::byte: take(1); return;
      case ThriftType::i16:
      case ThriftType::i32:
      case ThriftType::i64: read_varint(); return;
      case ThriftType::real: take(8); return;
      case ThriftType::binary: take(read_varint()); return;
      case ThriftType::uuid: take(16); return;
      case ThriftType::structure:
        read_struct([](int64_t, ThriftType) { return false; });
        return;
      case ThriftType::list:
      case ThriftType::set: skip_items(); return;
      default: throw std::invalid_argument("a value has a type that parquet does not use");
    }
  }

 private:
  static constexpr unsigned kMaxDepth = 32;

  size_t left() const { return static_cast<size_t>(end_ - at_); }

  const uint8_t* take(uint64_t size) {
    if (size > left()) throw std::invalid_argument("the data end in the middle of a value");
    const uint8_t* const taken = at_;
    at_ += size;
    return taken;
  }

  uint8_t next() { return *take(1); }

  uint64_t read_varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = next();
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw std::invalid_argument("a number is too long");
  }

  int64_t read_integer() {
    const uint64_t value = read_varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }

  void skip_items() {
    if (depth_ == kMaxDepth) throw std::invalid_argument("lists are nested too deeply");
    ++depth_;
    const ThriftList list = read_list();
    const bool is_bool = list.type == ThriftType::yes || list.type == ThriftType::no;
    for (size_t i = 0; i < list.size; ++i) skip(is_bool ? ThriftType::byte : list.type);
    --depth_;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  unsigned depth_ = 0;
};

}  // namespace penstok::kernel
