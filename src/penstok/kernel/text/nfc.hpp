// Checks whether text is in Unicode normal form C (NFC), by the standard's quick check.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// True: [begin, end) is UTF-8 in NFC. False: it may not be. To pass, no character may be one that
// normalization changes or could compose with the one before it, and combining classes must not
// decrease.
bool is_surely_nfc(const uint8_t* begin, const uint8_t* end);

// Sets out[i] to whether text[starts[i], ends[i]) passes, for `count` documents.
void find_surely_nfc(const uint8_t* text, const int64_t* starts, const int64_t* ends, size_t count,
                     uint8_t* out);

}  // namespace penstok::kernel
