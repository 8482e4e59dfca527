// (left id, right id) -> merged id, as a perfect hash: one probe, no branch, no chain.
//
// Hash and displace: a part of the hash selects a bucket, the bucket's displacement is added to
// another part, and the displacements are chosen so that no two pairs share a slot.
#pragma once

#include <type_traits>
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

// For ids of up to 21 bits.
class PairTable32 {
 public:
  explicit PairTable32(const std::vector<Merge>& merges);

  // kNoMerge if the pair is not a token.
  PENSTOK_INLINE uint32_t find(uint32_t left, uint32_t right) const {
    return read(probe(left, right));
  }

  // The same in two steps, so that the entry can be prefetched.
  struct Probe {
    uint64_t pair;
    uint64_t slot;
  };
  PENSTOK_INLINE Probe prefetch(uint32_t left, uint32_t right) const {
    const Probe found = probe(left, right);
    __builtin_prefetch(entries_ + found.slot);
    return found;
  }
  PENSTOK_INLINE uint32_t read(const Probe& probe) const {
    // An entry is (left, right, merged); subtracting (left, right, 0) leaves `merged` if the pair
    // matches, and a number far too large if it does not.
    const uint64_t rest = entries_[probe.slot] - (probe.pair << kValueBits);
    return rest <= kMaxId ? static_cast<uint32_t>(rest) : kNoMerge;
  }
  // The same if only the slot was kept.
  PENSTOK_INLINE uint32_t read_slot(uint32_t left, uint32_t right, uint32_t slot) const {
    return read({pair_of(left, right), slot});
  }

 private:
  static constexpr unsigned kValueBits = 64 - 2 * kIdBits;
  static constexpr unsigned kSlotShift = 26;

  PENSTOK_INLINE static uint64_t pair_of(uint32_t left, uint32_t right) {
    return uint64_t{left} << kIdBits | right;
  }
  PENSTOK_INLINE Probe probe(uint32_t left, uint32_t right) const {
    const uint64_t pair = pair_of(left, right);
    const uint64_t hash = pair * multiplier_;
    return {pair, ((hash >> kSlotShift) + displacements_[hash >> bucket_shift_]) & mask_};
  }

  bool place(const std::vector<Merge>& merges, unsigned slot_bits);

  const uint64_t* entries_ = nullptr;
  const uint16_t* displacements_ = nullptr;
  uint64_t multiplier_ = 1;
  uint64_t mask_ = 0;
  unsigned bucket_shift_ = 63;
  Buffer entry_buffer_;
  Buffer displacement_buffer_;
};

// For ids below 65,535, in half the memory: GPT-2's 50,000 merges take 256 KB of entries and 16 KB
// of displacements, which stay in the first-level cache.
//
// A pair is 32 bits, which are mixed reversibly. The upper bits of the result give the slot, the
// lower ones are stored in it, beside the merged id, and select the displacement. So a slot and its
// lower bits determine the pair.
class PairTable16 {
 public:
  explicit PairTable16(const std::vector<Merge>& merges);

  // 0xFFFF if the pair is not a token.
  PENSTOK_INLINE uint16_t find(uint32_t left, uint32_t right) const {
    return read(probe(left, right));
  }

  // The same in two steps, so that the entry can be prefetched.
  struct Probe {
    uint32_t slot, low;
  };
  PENSTOK_INLINE Probe prefetch(uint32_t left, uint32_t right) const {
    const Probe found = probe(left, right);
    __builtin_prefetch(entries_ + found.slot);
    return found;
  }
  PENSTOK_INLINE uint16_t read(const Probe& probe) const {
    const uint32_t rest = entries_[probe.slot] - probe.low;
    return static_cast<uint16_t>(rest < kNone ? rest : kNone);
  }

 private:
  // A free slot: no token has that id, and for pairs with other lower bits than 0 the difference in
  // `read` is larger.
  static constexpr uint32_t kNone = 0xFFFF;

  PENSTOK_INLINE uint32_t mix(uint32_t pair) const {
    const uint32_t product = pair * multiplier_;
    return product ^ product >> 16;
  }
  PENSTOK_INLINE Probe probe(uint32_t left, uint32_t right) const {
    const uint32_t mixed = mix(left << 16 | right);
    const uint32_t displacement = displacements_[bucket_of(mixed)];
    return {((mixed >> low_bits_) + displacement) & slot_mask_, (mixed & low_mask_) << 16};
  }
  PENSTOK_INLINE uint32_t bucket_of(uint32_t mixed) const { return (mixed & low_mask_) >> 2; }

  bool place(const std::vector<Merge>& merges, unsigned slot_bits);

  const uint32_t* entries_ = nullptr;
  const uint8_t* displacements_ = nullptr;
  uint32_t multiplier_ = 1;  // odd, so that multiplying is reversible
  uint32_t low_mask_ = 0, slot_mask_ = 0;
  unsigned low_bits_ = 16;
  Buffer buffer_;
};

template <class Id>
using PairTable = std::conditional_t<sizeof(Id) == 2, PairTable16, PairTable32>;

}  // namespace penstok::kernel
