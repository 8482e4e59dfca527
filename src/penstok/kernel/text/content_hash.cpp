#include "text/content_hash.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstok::kernel {
namespace {

// The constants below are part of the specification.
constexpr uint64_t kPrime32_1 = 0x9E3779B1;
constexpr uint64_t kPrime32_2 = 0x85EBCA77;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5;
constexpr uint64_t kMixPrime_1 = 0x165667919E3779F9;
constexpr uint64_t kMixPrime_2 = 0x9FB21C651E98DF25;

constexpr size_t kSecretBytes = 192;

struct Secret {
  alignas(64) uint8_t bytes[kSecretBytes];
};

constexpr Secret kDefaultSecret = {{
    0xB8, 0xFE, 0x6C, 0x39, 0x23, 0xA4, 0x4B, 0xBE, 0x7C, 0x01, 0x81, 0x2C, 0xF7, 0x21, 0xAD, 0x1C,
    0xDE, 0xD4, 0x6D, 0xE9, 0x83, 0x90, 0x97, 0xDB, 0x72, 0x40, 0xA4, 0xA4, 0xB7, 0xB3, 0x67, 0x1F,
    0xCB, 0x79, 0xE6, 0x4E, 0xCC, 0xC0, 0xE5, 0x78, 0x82, 0x5A, 0xD0, 0x7D, 0xCC, 0xFF, 0x72, 0x21,
    0xB8, 0x08, 0x46, 0x74, 0xF7, 0x43, 0x24, 0x8E, 0xE0, 0x35, 0x90, 0xE6, 0x81, 0x3A, 0x26, 0x4C,
    0x3C, 0x28, 0x52, 0xBB, 0x91, 0xC3, 0x00, 0xCB, 0x88, 0xD0, 0x65, 0x8B, 0x1B, 0x53, 0x2E, 0xA3,
    0x71, 0x64, 0x48, 0x97, 0xA2, 0x0D, 0xF9, 0x4E, 0x38, 0x19, 0xEF, 0x46, 0xA9, 0xDE, 0xAC, 0xD8,
    0xA8, 0xFA, 0x76, 0x3F, 0xE3, 0x9C, 0x34, 0x3F, 0xF9, 0xDC, 0xBB, 0xC7, 0xC7, 0x0B, 0x4F, 0x1D,
    0x8A, 0x51, 0xE0, 0x4B, 0xCD, 0xB4, 0x59, 0x31, 0xC8, 0x9F, 0x7E, 0xC9, 0xD9, 0x78, 0x73, 0x64,
    0xEA, 0xC5, 0xAC, 0x83, 0x34, 0xD3, 0xEB, 0xC3, 0xC5, 0x81, 0xA0, 0xFF, 0xFA, 0x13, 0x63, 0xEB,
    0x17, 0x0D, 0xDD, 0x51, 0xB7, 0xF0, 0xDA, 0x49, 0xD3, 0x16, 0x55, 0x26, 0x29, 0xD4, 0x68, 0x9E,
    0x2B, 0x16, 0xBE, 0x58, 0x7D, 0x47, 0xA1, 0xFC, 0x8F, 0xF8, 0xB8, 0xD1, 0x7A, 0xD0, 0x31, 0xCE,
    0x45, 0xCB, 0x3A, 0x8F, 0x95, 0x16, 0x04, 0x28, 0xAF, 0xD7, 0xFB, 0xCA, 0xBB, 0x4B, 0x40, 0x7E,
}};

// ---- Building blocks ----

uint32_t load32(const void* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint64_t secret_word(size_t offset) {
  return load64(kDefaultSecret.bytes + offset);
}

uint64_t secret_pair(size_t offset) {  // two neighbouring words, combined by xor
  return secret_word(offset) ^ secret_word(offset + 8);
}

uint64_t rotate_left(uint64_t value, unsigned bits) {
  return value << bits | value >> (64 - bits);
}

// The two halves of the 128-bit product, combined by xor.
uint64_t folded_product(uint64_t left, uint64_t right) {
  const auto product = static_cast<unsigned __int128>(left) * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The three final steps of the specification; which one applies depends on the length.
uint64_t finish(uint64_t hash) {
  hash = (hash ^ hash >> 37) * kMixPrime_1;
  return hash ^ hash >> 32;
}

uint64_t finish_tiny(uint64_t hash) {
  hash = (hash ^ hash >> 33) * kPrime64_2;
  hash = (hash ^ hash >> 29) * kPrime64_3;
  return hash ^ hash >> 32;
}

uint64_t finish_one_word(uint64_t hash, size_t size) {
  hash = (hash ^ rotate_left(hash, 49) ^ rotate_left(hash, 24)) * kMixPrime_2;
  hash = (hash ^ ((hash >> 35) + size)) * kMixPrime_2;
  return hash ^ hash >> 28;
}

// ---- Up to 240 bytes: a formula per range of lengths ----

uint64_t hash_0(uint64_t seed) {
  return finish_tiny(seed ^ secret_pair(56));
}

uint64_t hash_1_to_3(const uint8_t* data, size_t size, uint64_t seed) {
  const uint32_t first = data[0], middle = data[size / 2], last = data[size - 1];
  const uint32_t word = first << 16 | middle << 24 | last | static_cast<uint32_t>(size) << 8;
  const uint32_t key = load32(kDefaultSecret.bytes) ^ load32(kDefaultSecret.bytes + 4);
  return finish_tiny(word ^ (key + seed));
}

uint64_t hash_4_to_8(const uint8_t* data, size_t size, uint64_t seed) {
  const uint64_t first = load32(data), last = load32(data + size - 4);
  seed ^= uint64_t{__builtin_bswap32(static_cast<uint32_t>(seed))} << 32;
  return finish_one_word((last | first << 32) ^ (secret_pair(8) - seed), size);
}

uint64_t hash_9_to_16(const uint8_t* data, size_t size, uint64_t seed) {
  const uint64_t first = load64(data) ^ (secret_pair(24) + seed);
  const uint64_t last = load64(data + size - 8) ^ (secret_pair(40) - seed);
  return finish(size + __builtin_bswap64(first) + last + folded_product(first, last));
}

uint64_t mix_16_bytes(const uint8_t* data, size_t secret_offset, uint64_t seed) {
  return folded_product(load64(data) ^ (secret_word(secret_offset) + seed),
                        load64(data + 8) ^ (secret_word(secret_offset + 8) - seed));
}

// From both ends inwards; the two middle mixes may overlap.
uint64_t hash_17_to_128(const uint8_t* data, size_t size, uint64_t seed) {
  uint64_t hash = size * kPrime64_1;
  const size_t pairs = (size + 31) / 32;
  for (size_t i = 0; i < pairs; ++i) {
    hash += mix_16_bytes(data + 16 * i, 32 * i, seed);
    hash += mix_16_bytes(data + size - 16 * (i + 1), 32 * i + 16, seed);
  }
  return finish(hash);
}

// From start to end; the secret is too short for all of it and is reused, shifted by 3.
uint64_t hash_129_to_240(const uint8_t* data, size_t size, uint64_t seed) {
  uint64_t hash = size * kPrime64_1;
  for (size_t i = 0; i < 8; ++i) hash += mix_16_bytes(data + 16 * i, 16 * i, seed);
  hash = finish(hash);
  for (size_t i = 8; i < size / 16; ++i) {
    hash += mix_16_bytes(data + 16 * i, 16 * (i - 8) + 3, seed);
  }
  return finish(hash + mix_16_bytes(data + size - 16, 119, seed));
}

// ---- Over 240 bytes: eight lanes, stripe by stripe ----

constexpr size_t kShortest = 241;
constexpr size_t kLanes = 8;
constexpr size_t kStripeBytes = 8 * kLanes;
constexpr size_t kSecretStep = 8;  // each stripe of a block uses the secret 8 bytes further on
constexpr size_t kBlockStripes = (kSecretBytes - kStripeBytes) / kSecretStep;
constexpr size_t kBlockBytes = kBlockStripes * kStripeBytes;
static_assert(kBlockBytes == 1024, "192 bytes of secret are enough for 16 stripes");

using Lanes = uint64_t[kLanes];

// A seed of 0 gives the default secret.
Secret secret_for(uint64_t seed) {
  Secret secret;
  for (size_t i = 0; i < kSecretBytes; i += 16) {
    const uint64_t words[2] = {secret_word(i) + seed, secret_word(i + 8) - seed};
    std::memcpy(secret.bytes + i, words, sizeof words);
  }
  return secret;
}

// Adds to each lane the product of its keyed word's halves and the plain word of its neighbour.
#if defined(__SSE2__)  // on every x86-64; GCC 12 does not generate this multiplication by itself
__m128i load128(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

void accumulate(Lanes& lanes, const uint8_t* data, size_t stripes, const uint8_t* secret) {
  constexpr size_t kVectors = kStripeBytes / sizeof(__m128i);
  __m128i sums[kVectors];
  std::memcpy(sums, lanes, sizeof sums);
  for (size_t stripe = 0; stripe < stripes; ++stripe) {
    for (size_t i = 0; i < kVectors; ++i) {
      const __m128i words = load128(data + stripe * kStripeBytes + 16 * i);
      const __m128i keyed = _mm_xor_si128(words, load128(secret + stripe * kSecretStep + 16 * i));
      const __m128i neighbours = _mm_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2));
      const __m128i products = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
      sums[i] = _mm_add_epi64(sums[i], _mm_add_epi64(neighbours, products));
    }
  }
  std::memcpy(lanes, sums, sizeof sums);
}
#else
void accumulate(Lanes& lanes, const uint8_t* data, size_t stripes, const uint8_t* secret) {
  for (size_t stripe = 0; stripe < stripes; ++stripe) {
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t word = load64(data + stripe * kStripeBytes + 8 * i);
      const uint64_t keyed = word ^ load64(secret + stripe * kSecretStep + 8 * i);
      lanes[i ^ 1] += word;
      lanes[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32);
    }
  }
}
#endif

void scramble(Lanes& lanes, const uint8_t* secret) {
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ load64(secret + 8 * i)) * kPrime32_1;
  }
}

uint64_t merge(const Lanes& lanes, size_t size, const uint8_t* secret) {
  uint64_t hash = size * kPrime64_1;
  for (size_t i = 0; i < kLanes; i += 2) {
    hash += folded_product(lanes[i] ^ load64(secret + 8 * i),
                           lanes[i + 1] ^ load64(secret + 8 * i + 8));
  }
  return finish(hash);
}

uint64_t hash_long(const uint8_t* data, size_t size, const Secret& secret) {
  const uint8_t* const last_key = secret.bytes + kSecretBytes - kStripeBytes;
  Lanes lanes = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                 kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  // The last byte is left over even if it ends a block or a stripe, so that the last 64 bytes,
  // which may overlap the stripe before, are always a separate stripe.
  const size_t blocks = (size - 1) / kBlockBytes;
  for (size_t block = 0; block < blocks; ++block) {
    accumulate(lanes, data + block * kBlockBytes, kBlockStripes, secret.bytes);
    scramble(lanes, last_key);
  }
  const size_t stripes = (size - 1) % kBlockBytes / kStripeBytes;
  accumulate(lanes, data + blocks * kBlockBytes, stripes, secret.bytes);
  accumulate(lanes, data + size - kStripeBytes, 1, last_key - 7);
  return merge(lanes, size, secret.bytes + 11);
}

uint64_t hash_short(const uint8_t* data, size_t size, uint64_t seed) {
  if (size > 128) return hash_129_to_240(data, size, seed);
  if (size > 16) return hash_17_to_128(data, size, seed);
  if (size > 8) return hash_9_to_16(data, size, seed);
  if (size > 3) return hash_4_to_8(data, size, seed);
  if (size > 0) return hash_1_to_3(data, size, seed);
  return hash_0(seed);
}

}  // namespace

uint64_t content_hash(const uint8_t* data, size_t size, uint64_t seed) {
  if (size < kShortest) return hash_short(data, size, seed);
  return hash_long(data, size, secret_for(seed));
}

void hash_documents(const uint8_t* text, const int64_t* starts, const int64_t* heads, size_t count,
                    uint64_t seed, uint64_t* out) {
  const Secret secret = secret_for(seed);  // once for all documents
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const data = text + starts[i];
    const auto size = static_cast<size_t>(heads[i] - starts[i]);
    out[i] = size < kShortest ? hash_short(data, size, seed) : hash_long(data, size, secret);
  }
}

}  // namespace penstok::kernel
