#include "bpe/state.hpp"

#include <algorithm>
#include <vector>

#include "bpe/merge_heap.hpp"
#include "bpe/merge_plain.hpp"

namespace penstok::kernel {
namespace {

unsigned write_utf8(uint32_t code_point, uint8_t* to) {  // U+0080 to U+FFFF
  if (code_point < 0x800) {
    to[0] = static_cast<uint8_t>(0xC0 | code_point >> 6);
    to[1] = static_cast<uint8_t>(0x80 | (code_point & 63));
    return 2;
  }
  to[0] = static_cast<uint8_t>(0xE0 | code_point >> 12);
  to[1] = static_cast<uint8_t>(0x80 | (code_point >> 6 & 63));
  to[2] = static_cast<uint8_t>(0x80 | (code_point & 63));
  return 3;
}

}  // namespace

template <class Id>
MergeTables<Id>::MergeTables(const Vocabulary& vocabulary)
    : pairs(vocabulary.merges()),
      never_merged(static_cast<Id>(vocabulary.id_of_longest())),
      falling((vocabulary.max_id() / 64 + 1) * sizeof(uint64_t)) {
  for (uint32_t id : vocabulary.falling_ids()) {
    falling.as<uint64_t>()[id >> 6] |= uint64_t{1} << (id & 63);
  }
  const uint32_t* byte_ids = vocabulary.byte_ids();
  for (unsigned left = 0; left < 256; ++left) {
    for (unsigned right = 0; right < 256; ++right) {
      const auto rank = static_cast<Id>(pairs.find(byte_ids[left], byte_ids[right]));
      BytePair<Id>& pair = byte_pairs[right << 8 | left];
      pair.rank = rank;
      pair.left_id = static_cast<Id>(byte_ids[left]);
    }
  }
  find_lowest_across(vocabulary);
}

template <class Id>
void MergeTables<Id>::find_lowest_across(const Vocabulary& vocabulary) {
  if constexpr (sizeof(Id) == 2) {
    std::vector<uint8_t> first_bytes(vocabulary.max_id() + 1), last_bytes(vocabulary.max_id() + 1);
    for (const Token& token : vocabulary.tokens()) {
      first_bytes[token.id] = static_cast<uint8_t>(token.bytes.front());
      last_bytes[token.id] = static_cast<uint8_t>(token.bytes.back());
    }
    for (BytePair<Id>& pair : byte_pairs) pair.lowest_across = kNoId<Id>;
    for (const Merge& merge : vocabulary.merges()) {
      Id& lowest =
          byte_pairs[first_bytes[merge.right] << 8 | last_bytes[merge.left]].lowest_across;
      lowest = std::min(lowest, static_cast<Id>(merge.merged));
    }
  }
}

template <class Id>
State<Id>::State(const Vocabulary& vocabulary, size_t table_bytes)
    : merges(vocabulary),
      whole_tokens(vocabulary.whole_tokens()),
      junctions(vocabulary),
      character_buffer(2 * kCharacters * sizeof(CharacterIds<Id>)),
      pieces(table_bytes) {
  fill_characters(vocabulary);
  fill_space_runs();
}

template <class Id>
void State<Id>::fill_characters(const Vocabulary& vocabulary) {
  constexpr bool kHasStarts = sizeof(Id) == 4;
  CharacterStart* starts = nullptr;
  std::vector<uint32_t> around;
  if constexpr (kHasStarts) {
    start_buffer = Buffer(kCharacters * sizeof(CharacterStart));
    starts = start_buffer.as<CharacterStart>();
    borders = CharacterBorders(vocabulary, starts);
    around = lowest_ranks_around_characters(vocabulary);
    for (unsigned byte = 0; byte < 0x80; ++byte) {
      const Id id = merges.byte_id(static_cast<uint8_t>(byte));
      fill_start(starts[byte], &id, 1, 1, true);
    }
  }
  auto* alone = character_buffer.as<CharacterIds<Id>>();
  for (uint32_t code_point = 0x80; code_point < kCharacters; ++code_point) {
    uint8_t bytes[4] = {' '};
    const unsigned length = write_utf8(code_point, bytes + 1);
    Id ids[4], highest = 0;
    const unsigned count = merge_plain(merges, bytes + 1, length, ids, &highest);
    if constexpr (kHasStarts) {
      fill_start(starts[code_point], ids, count, length, around[code_point] > highest);
    }
    CharacterIds<Id>& entry = alone[code_point];
    for (unsigned i = 0; i < 3; ++i) entry.ids[i] = i < count ? ids[i] : kNoId<Id>;
    entry.ids[3] = static_cast<Id>(count);
    if (length == 3) entry.ids[3] |= static_cast<Id>(joined_leads(bytes + 1) << entry.kCountBits);

    CharacterIds<Id>& after_space = alone[kCharacters + code_point];
    const unsigned count_after = merge_plain(merges, bytes, 1 + length, ids);
    for (unsigned i = 0; i < 4; ++i) after_space.ids[i] = i < count_after ? ids[i] : kNoId<Id>;
  }
}

template <class Id>
unsigned State<Id>::joined_leads(const uint8_t* character) const {
  unsigned leads = 0;
  for (unsigned i = 0; i < CharacterIds<Id>::kLeads; ++i) {
    const auto lead = static_cast<uint8_t>(0xE0 + i);
    leads |= unsigned{junctions.may_join(character[1], character[2], lead)} << i;
  }
  return leads;
}

// Merging starts from the ids of a character alone if no token around it has a lower rank.
template <class Id>
void State<Id>::fill_start(CharacterStart& start, const Id* ids, unsigned count, unsigned length,
                           bool starts_merged) {
  start.id = ids[0];
  start.count = static_cast<uint8_t>(starts_merged ? count : length);
  start.joints = static_cast<uint8_t>(starts_merged ? 0 : bits_below(length - 1));
}

template <class Id>
void State<Id>::fill_space_runs() {
  std::vector<Id> all;
  for (unsigned length = 1; length <= kLongestSpaceRun; ++length) {
    std::vector<Id> ids(length, merges.byte_id(' '));
    std::vector<Id> ranks(length, merges.byte_pair(' ', ' ').rank);
    const size_t count = merge_heap(merges, ids.data(), ranks.data(), length);
    spaces.offset[length] = static_cast<uint32_t>(all.size());
    spaces.count[length] = static_cast<uint16_t>(count);
    all.insert(all.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  }
  spaces.ids = Buffer(all.size() * sizeof(Id));
  std::memcpy(spaces.ids.template as<Id>(), all.data(), all.size() * sizeof(Id));
}

template struct MergeTables<uint16_t>;
template struct MergeTables<uint32_t>;
template struct State<uint16_t>;
template struct State<uint32_t>;

}  // namespace penstok::kernel
