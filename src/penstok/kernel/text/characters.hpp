// Counts the characters of UTF-8 text.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// Returns how many characters `count` documents text[starts[i], ends[i]) have together: the bytes
// that do not continue one.
uint64_t count_characters(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                          size_t count);

}  // namespace penstok::kernel
