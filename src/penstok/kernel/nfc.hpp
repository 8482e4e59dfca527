// Whether text is in Unicode normal form C, by the standard's quick check.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// True: [begin, end) is UTF-8 in normal form C. False: perhaps it is not. No character may be one
// that changes, or could join the one before it, and combining classes must not fall.
bool is_surely_nfc(const uint8_t* begin, const uint8_t* end);

// Sets out[i] to whether text[starts[i], ends[i]) is so, for `count` documents.
void find_surely_nfc(const uint8_t* text, const int64_t* starts, const int64_t* ends, size_t count,
                     uint8_t* out);

}  // namespace penstok::kernel
