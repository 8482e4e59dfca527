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

// The pairs of all buckets in one array, and where each bucket begins in it.
template <class Entry>
struct Buckets {
  std::vector<uint32_t> begins;
  std::vector<Item<Entry>> items;

  // `item_of(merge, bucket)` returns the item of a merge and sets its bucket.
  template <class ItemOf>
  Buckets(const std::vector<Merge>& merges, size_t count, ItemOf item_of)
      : begins(count + 1), items(merges.size()) {
    std::vector<uint32_t> numbers(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      item_of(merges[i], numbers[i]);
      ++begins[numbers[i]];
    }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    for (size_t i = merges.size(); i-- > 0;) {
      uint32_t ignored;
      items[--begins[numbers[i]]] = item_of(merges[i], ignored);
    }
  }

  uint32_t size_of(size_t number) const { return begins[number + 1] - begins[number]; }
  size_t count() const { return begins.size() - 1; }

  // The numbers of the buckets that are not empty, the fullest first.
  std::vector<uint32_t> fullest_first() const {
    uint32_t most = 0;
    for (size_t i = 0; i < count(); ++i) most = std::max(most, size_of(i));
    std::vector<uint32_t> firsts(most + 2);
    for (size_t i = 0; i < count(); ++i) ++firsts[most - size_of(i) + 1];
    std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
    std::vector<uint32_t> order(count());
    const uint32_t filled = firsts[most];
    for (uint32_t i = 0; i < count(); ++i) order[firsts[most - size_of(i)]++] = i;
    order.resize(filled);
    return order;
  }
};

// Gives every bucket, the fullest first, the first displacement at which all its pairs fall into
// free slots. Returns false if there is none for some bucket.
template <class Entry, class Displacement>
bool place_buckets(const Buckets<Entry>& buckets, Entry free, Entry mask, Entry* entries,
                   Displacement* displacements) {
  std::fill_n(entries, size_t{mask} + 1, free);
  for (uint32_t number : buckets.fullest_first()) {
    const Item<Entry>* items = buckets.items.data() + buckets.begins[number];
    const uint32_t size = buckets.size_of(number);
    const auto fits = [&](uint32_t displacement) {
      for (uint32_t i = 0; i < size; ++i) {
        Entry& slot = entries[(items[i].slot + displacement) & mask];
        if (slot != free) {
          while (i-- > 0) entries[(items[i].slot + displacement) & mask] = free;
          return false;
        }
        slot = items[i].entry;
      }
      return true;
    };
    uint32_t displacement = 0;
    while (!fits(displacement)) {
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

  const auto item_of = [&](const Merge& merge, uint32_t& bucket) {
    const uint64_t pair = uint64_t{merge.left} << kIdBits | merge.right;
    const uint64_t hash = pair * multiplier_;
    bucket = static_cast<uint32_t>(hash >> bucket_shift_);
    return Item<uint64_t>{hash >> kSlotShift, pair << kValueBits | merge.merged};
  };
  const Buckets<uint64_t> buckets(merges, num_buckets, item_of);
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

  const auto item_of = [&](const Merge& merge, uint32_t& bucket) {
    const uint32_t mixed = mix(merge.left << 16 | merge.right);
    bucket = bucket_of(mixed);
    return Item<uint32_t>{mixed >> low_bits_, (mixed & low_mask_) << 16 | merge.merged};
  };
  const Buckets<uint32_t> buckets(merges, num_buckets, item_of);
  return place_buckets(buckets, kNone, slot_mask_, entries, displacements);
}

}  // namespace penstok::kernel
