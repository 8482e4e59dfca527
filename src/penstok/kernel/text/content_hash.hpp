// The hash of a document's bytes, which decides whether the document goes to train or val.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// XXH3 with 64 bits and a seed, as specified by xxHash 0.8: equal to Python's
// xxhash.xxh3_64_intdigest(data, seed), so that splits can be checked without this library.
// Reads exactly `size` bytes.
uint64_t content_hash(const uint8_t* data, size_t size, uint64_t seed);

// Sets out[i] to the hash of text[starts[i], heads[i]).
void hash_documents(const uint8_t* text, const int64_t* starts, const int64_t* heads, size_t count,
                    uint64_t seed, uint64_t* out);

}  // namespace penstok::kernel
