// What the fuzzers of input formats share: chance, damage, and exact buffers.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>

#include "bytes.hpp"

namespace penstok::kernel {

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }

  const char* pick(std::initializer_list<const char*> of) { return of.begin()[below(of.size())]; }

  // Half of the bytes that are put in are `likely` ones.
  std::string damaged(std::string text, const std::string& likely) {
    for (size_t i = 1 + below(4); i > 0 && !text.empty(); --i) {
      const size_t at = below(text.size());
      const char byte =
          below(2) == 0 ? likely[below(likely.size())] : static_cast<char>(below(256));
      switch (below(4)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + below(4));
          break;
        default:
          text.resize(at);
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// An allocation of exactly the promised size, so that a sanitizer sees any step outside.
class Exact {
 public:
  explicit Exact(size_t size) : size_(size), bytes_(new uint8_t[size]) {}
  explicit Exact(const std::string& bytes) : Exact(bytes.size()) {
    if (!bytes.empty()) std::memcpy(bytes_.get(), bytes.data(), bytes.size());
  }

  uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

  std::string text(size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.get()), size};
  }

 private:
  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace penstok::kernel
