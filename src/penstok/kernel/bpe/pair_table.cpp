#include "bpe/pair_table.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace penstok::kernel {
namespace {

constexpr unsigned kTriesPerSize = 16;
constexpr unsigned kLargestSlotBits = 24;
constexpr unsigned kSmallestSlotBits16 = 16;  // the other 16 bits are stored in the slot
constexpr unsigned kLargestSlotBits16 = 18;
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

// Tries multipliers, then larger tables, until place(multiplier, slot_bits) succeeds.
template <class Place>
void search(unsigned first_bits, unsigned last_bits, Place place) {
  uint64_t random = 88172645463325252ull;
  for (unsigned bits = first_bits; bits <= last_bits; ++bits) {
    for (unsigned tries = 0; tries < kTriesPerSize; ++tries) {
      if (place(next_random(random), bits)) return;
    }
  }
  throw std::runtime_error("no perfect hash found for the merges of this vocabulary");
}

template <class Entry>
struct Item {
  Entry slot, entry;  // the slot without the displacement
};
template <class Entry>
using Buckets = std::vector<std::vector<Item<Entry>>>;

// Gives every bucket, the fullest first, the first displacement at which all its pairs fall into
// free slots. Returns false if there is none for some bucket.
template <class Entry, class Displacement>
bool place_buckets(const Buckets<Entry>& buckets, Entry free, Entry mask, Entry* entries,
                   Displacement* displacements) {
  std::fill_n(entries, size_t{mask} + 1, free);
  std::vector<uint32_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return buckets[a].size() > buckets[b].size(); });

  const auto fits = [&](const std::vector<Item<Entry>>& bucket, uint32_t displacement) {
    for (size_t i = 0; i < bucket.size(); ++i) {
      Entry& slot = entries[(bucket[i].slot + displacement) & mask];
      if (slot != free) {
        while (i-- > 0) entries[(bucket[i].slot + displacement) & mask] = free;
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
      if (++displacement > std::numeric_limits<Displacement>::max()) return false;
    }
    displacements[number] = static_cast<Displacement>(displacement);
  }
  return true;
}

}  // namespace

PairTable32::PairTable32(const std::vector<Merge>& merges) {
  search(first_slot_bits(merges.size()), kLargestSlotBits, [&](uint64_t random, unsigned bits) {
    multiplier_ = random | 1;
    return place(merges, bits);
  });
}

bool PairTable32::place(const std::vector<Merge>& merges, unsigned slot_bits) {
  const size_t slots = size_t{1} << slot_bits, num_buckets = slots >> 2;
  mask_ = slots - 1;
  bucket_shift_ = 64 - (slot_bits - 2);
  entry_buffer_ = Buffer(slots * sizeof(uint64_t));
  displacement_buffer_ = Buffer(num_buckets * sizeof(uint16_t));
  entries_ = entry_buffer_.as<uint64_t>();
  displacements_ = displacement_buffer_.as<uint16_t>();

  Buckets<uint64_t> buckets(num_buckets);
  for (const Merge& merge : merges) {
    const uint64_t pair = uint64_t{merge.left} << kIdBits | merge.right;
    const uint64_t hash = pair * multiplier_;
    buckets[hash >> bucket_shift_].push_back(
        {hash >> kSlotShift, pair << kValueBits | merge.merged});
  }
  return place_buckets(buckets, kFree, mask_, entry_buffer_.as<uint64_t>(),
                       displacement_buffer_.as<uint16_t>());
}

PairTable16::PairTable16(const std::vector<Merge>& merges) {
  search(kSmallestSlotBits16, kLargestSlotBits16, [&](uint64_t random, unsigned bits) {
    multiplier_ = static_cast<uint32_t>(random >> 32) | 1;
    return place(merges, bits);
  });
}

bool PairTable16::place(const std::vector<Merge>& merges, unsigned slot_bits) {
  const size_t slots = size_t{1} << slot_bits;
  low_bits_ = 32 - slot_bits;
  low_mask_ = (uint32_t{1} << low_bits_) - 1;
  slot_mask_ = static_cast<uint32_t>(slots - 1);
  const size_t num_buckets = size_t{bucket_of(low_mask_)} + 1;
  buffer_ = Buffer(slots * sizeof(uint32_t) + num_buckets);
  auto* entries = buffer_.as<uint32_t>();
  auto* displacements = reinterpret_cast<uint8_t*>(entries + slots);
  entries_ = entries;
  displacements_ = displacements;

  Buckets<uint32_t> buckets(num_buckets);
  for (const Merge& merge : merges) {
    const uint32_t mixed = mix(merge.left << 16 | merge.right);
    buckets[bucket_of(mixed)].push_back(
        {mixed >> low_bits_, (mixed & low_mask_) << 16 | merge.merged});
  }
  return place_buckets(buckets, kNone, slot_mask_, entries, displacements);
}

}  // namespace penstok::kernel
