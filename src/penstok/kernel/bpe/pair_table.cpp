#include "bpe/pair_table.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace penstok::kernel {
namespace {

constexpr unsigned kTriesPerSize = 16;
constexpr unsigned kLargestSlotBits = 24;
constexpr uint32_t kMaxDisplacement = 65535;
// A free slot. Its merged id would be 2^22 - 1, above every id, so that it is never found.
constexpr uint64_t kFree = ~uint64_t{0};

unsigned first_slot_bits(size_t merges) {
  unsigned bits = 8;
  while ((size_t{1} << bits) * 4 < merges * 5) ++bits;  // at most 80 % full
  return bits;
}

uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

PairTable::PairTable(const std::vector<Merge>& merges) {
  uint64_t random = 88172645463325252ull;
  for (unsigned bits = first_slot_bits(merges.size()); bits <= kLargestSlotBits; ++bits) {
    for (unsigned tries = 0; tries < kTriesPerSize; ++tries) {
      multiplier_ = next_random(random) | 1;
      if (place(merges, bits)) return;
    }
  }
  throw std::runtime_error("no perfect hash found for the merges of this vocabulary");
}

// Gives every bucket, the fullest first, the first displacement at which all its pairs fall into
// free slots. Returns false if there is none for some bucket.
bool PairTable::place(const std::vector<Merge>& merges, unsigned slot_bits) {
  const size_t slots = size_t{1} << slot_bits;
  const unsigned bucket_bits = slot_bits - 2;
  mask_ = slots - 1;
  bucket_shift_ = 64 - bucket_bits;
  entry_buffer_ = Buffer(slots * sizeof(uint64_t));
  displacement_buffer_ = Buffer((slots >> 2) * sizeof(uint16_t));
  auto* entries = entry_buffer_.as<uint64_t>();
  auto* displacements = displacement_buffer_.as<uint16_t>();
  std::fill_n(entries, slots, kFree);
  entries_ = entries;
  displacements_ = displacements;

  struct Item {
    uint64_t low, entry;
  };
  std::vector<std::vector<Item>> buckets(slots >> 2);
  for (const Merge& merge : merges) {
    const uint64_t pair = uint64_t{merge.left} << kIdBits | merge.right;
    const uint64_t hash = pair * multiplier_;
    buckets[hash >> bucket_shift_].push_back(
        {hash >> kSlotShift, pair << kValueBits | merge.merged});
  }
  std::vector<uint32_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return buckets[a].size() > buckets[b].size(); });

  const auto fits = [&](const std::vector<Item>& bucket, uint32_t displacement) {
    for (size_t i = 0; i < bucket.size(); ++i) {
      uint64_t& slot = entries[(bucket[i].low + displacement) & mask_];
      if (slot != kFree) {
        while (i-- > 0) entries[(bucket[i].low + displacement) & mask_] = kFree;
        return false;
      }
      slot = bucket[i].entry;
    }
    return true;
  };
  for (uint32_t number : order) {
    if (buckets[number].empty()) break;
    uint32_t displacement = 0;
    while (!fits(buckets[number], displacement)) {
      if (++displacement > kMaxDisplacement) return false;
    }
    displacements[number] = static_cast<uint16_t>(displacement);
  }
  return true;
}

}  // namespace penstok::kernel
