// (left id, right id) -> merged id, as a perfect hash: one probe, no branch, no chain.
#pragma once

#include <vector>

#include "bpe/memory.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// Ids are packed three to a table entry, so they must fit 21 bits (2,097,151; the largest
// vocabularies in use have 262,144).
constexpr unsigned kIdBits = 21;
constexpr uint32_t kMaxId = (uint32_t{1} << kIdBits) - 1;
constexpr uint32_t kNoMerge = ~uint32_t{0};

struct Merge {
  uint32_t left, right, merged;
};

// Hash and displace: the high bits of the hash select a bucket, the bucket's displacement is added
// to the low bits, and the displacements are chosen so that no two pairs collide. GPT-2's 50,000
// merges take 512 KB of entries and 32 KB of displacements, which stay in the second-level cache.
class PairTable {
 public:
  PairTable() = default;
  explicit PairTable(const std::vector<Merge>& merges);

  PENSTOK_INLINE uint32_t find(uint32_t left, uint32_t right) const {
    const uint64_t pair = uint64_t{left} << kIdBits | right;
    const uint64_t hash = pair * multiplier_;
    const uint64_t slot = ((hash >> kSlotShift) + displacements_[hash >> bucket_shift_]) & mask_;
    // An entry is (left, right, merged); subtracting (left, right, 0) leaves `merged` if the pair
    // matches, and a number far too large if it does not.
    const uint64_t rest = entries_[slot] - (pair << kValueBits);
    return rest <= kMaxId ? static_cast<uint32_t>(rest) : kNoMerge;
  }

 private:
  static constexpr unsigned kValueBits = 64 - 2 * kIdBits;
  static constexpr unsigned kSlotShift = 26;

  bool place(const std::vector<Merge>& merges, unsigned slot_bits);

  const uint64_t* entries_ = nullptr;
  const uint16_t* displacements_ = nullptr;
  uint64_t multiplier_ = 1;
  uint64_t mask_ = 0;
  unsigned bucket_shift_ = 63;
  Buffer entry_buffer_;
  Buffer displacement_buffer_;
};

}  // namespace penstok::kernel
