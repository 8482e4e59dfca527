// Tokens that no merges produce: a piece that equals one has its id, but the same bytes inside a
// longer piece are merged.
//
// So the piece tables, which parts of longer pieces share, never contain such bytes, and every
// piece that is not in those tables is looked up here. Most vocabularies have none; Llama 3 has a
// few hundred.
#pragma once

#include <vector>

#include "bpe/memory.hpp"
#include "bpe/vocabulary.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

class WholeTokens {
 public:
  WholeTokens() = default;
  explicit WholeTokens(const std::vector<Token>& tokens);

  // The id of the piece of `length` bytes at p, or kNoMerge. Reads 8 bytes.
  PENSTOK_INLINE uint32_t find(const uint8_t* p, size_t length) const {
    if (PENSTOK_LIKELY(length > longest_)) return kNoMerge;  // always if there are none
    const Slot* const slots = slot_buffer_.as<Slot>();
    for (size_t at = hash(p, length) & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots[at];
      if (slot.length == 0) return kNoMerge;
      if (slot.length != length) continue;
      if (std::memcmp(byte_buffer_.as<uint8_t>() + slot.offset, p, length) == 0) return slot.id;
    }
  }
  PENSTOK_INLINE bool contains(const uint8_t* p, size_t length) const {
    return find(p, length) != kNoMerge;
  }

 private:
  struct Slot {
    uint32_t length, offset, id;  // length 0: free
  };

  // Hashes the first and the last eight bytes, and the length.
  PENSTOK_INLINE static uint64_t hash(const uint8_t* p, size_t length) {
    const uint64_t head = load64(p) & bits_below(8 * (length < 8 ? length : 8));
    const uint64_t tail = length < 8 ? 0 : load64(p + length - 8);
    uint64_t mixed = head * 0x9E3779B97F4A7C15ull ^ (tail + length) * 0xC2B2AE3D27D4EB4Full;
    mixed ^= mixed >> 32;
    return mixed * 0xD6E8FEB86659FD93ull >> 32;
  }

  size_t longest_ = 0;
  size_t mask_ = 0;
  Buffer slot_buffer_, byte_buffer_;
};

}  // namespace penstok::kernel
