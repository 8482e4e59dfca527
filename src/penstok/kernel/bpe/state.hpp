// Everything an encoder owns: the read-only tables of its vocabulary, and its caches and buffers.
#pragma once

#include <memory>

#include "bpe/character_starts.hpp"
#include "bpe/hot_table.hpp"
#include "bpe/junctions.hpp"
#include "bpe/memory.hpp"
#include "bpe/pair_table.hpp"
#include "bpe/piece_table.hpp"
#include "bpe/vocabulary.hpp"
#include "bpe/whole_tokens.hpp"
#include "bytes.hpp"

namespace penstok::kernel {

// `Id` is uint16_t if every id is below 65,534 (GPT-2), otherwise uint32_t. The two highest values
// are reserved: kNoId marks an unused lane or an impossible merge, kRedo a rank to be looked up
// again.
template <class Id>
constexpr Id kNoId = static_cast<Id>(~Id{0});
template <class Id>
constexpr Id kRedo = static_cast<Id>(~Id{0} - 1);

// The initial state of two neighbouring bytes: the id of the first, and the rank of merging them.
template <class Id>
struct BytePair {
  Id rank;
  Id left_id;
};
template <>
struct alignas(8) BytePair<uint16_t> {
  uint16_t rank;
  uint16_t left_id;
  // The lowest rank of all merges of a part that ends with the first byte and one that begins with
  // the second: no merge across the border between them has a lower one (sure_merges.hpp).
  uint16_t lowest_across;
};

// The tables that merging uses.
template <class Id>
struct MergeTables {
  explicit MergeTables(const Vocabulary& vocabulary);

  PENSTOK_INLINE Id rank_of(Id left, Id right) const {
    return static_cast<Id>(pairs.find(left, right));  // kNoId for no token
  }

  PENSTOK_INLINE const BytePair<Id>& byte_pair(uint8_t left, uint8_t right) const {
    return byte_pairs[right << 8 | left];
  }
  PENSTOK_INLINE Id byte_id(uint8_t byte) const { return byte_pairs[byte].left_id; }

  // Can creating this token create a pair of lower rank? (Proof 3 of vocabulary.hpp.)
  PENSTOK_INLINE bool may_fall(Id id) const {
    return falling.as<uint64_t>()[id >> 6] >> (id & 63) & 1;
  }

  PairTable<Id> pairs;
  Id never_merged;  // an id that is part of no merge: that of a longest token
  Buffer falling;                  // a bit for every id
  BytePair<Id> byte_pairs[65536];  // [right << 8 | left]: two bytes of text, read as a number

 private:
  void find_lowest_across(const Vocabulary& vocabulary);
};

// The ids of single characters, alone and after a space; unused ones are kNoId. Instead of a fourth
// id, characters alone have the count of the others and, if they take three bytes, the lead bytes
// from E0 on that some token may join them to.
template <class Id>
struct CharacterIds {
  static constexpr unsigned kCountBits = 2;
  static constexpr unsigned kLeads = 14;

  Id ids[4];

  PENSTOK_INLINE bool may_join(uint8_t lead) const {  // true is always a safe answer
    const unsigned number = lead - 0xE0u;
    return number >= kLeads || (ids[3] >> (kCountBits + number) & 1);
  }
};

constexpr unsigned kCharacters = 0x10000;  // the Basic Multilingual Plane
constexpr unsigned kLongestSpaceRun = 512;

// The ids of 1 to 512 spaces: indentation and tables made of spaces.
template <class Id>
struct SpaceRuns {
  uint32_t offset[kLongestSpaceRun + 1];
  uint16_t count[kLongestSpaceRun + 1];
  Buffer ids;
};

// The working memory for one batch of pieces. It is part of the encoder because thread_local cost
// 27 % in a shared library.
//
// With 32-bit ids a miss waits for larger tables, and more misses should wait together.
template <class Id>
constexpr unsigned kBatchPieces = sizeof(Id) == 4 ? 3072 : 2048;
template <class Id>
constexpr unsigned kBatchCapacity = kBatchPieces<Id> + 160;  // it may exceed by 64 bytes of text

// A gap between two documents, which counts as a piece of a batch.
struct Border {
  uint32_t piece;
  bool has_eot, has_bos;  // which ids are written for it, in this order
  uint32_t cold_piece;    // its number among the pieces that are not in the hot table
};

// A piece that was missed before in its batch.
struct Repeat {
  uint32_t piece, first;
};

// A part of a long piece, merged on its own (windows.hpp).
template <class Id>
struct Window {
  Id ids[kMaxInitialIds];  // what it was merged to
  uint64_t starts;         // bit i: a token begins with initial id i, or the window ends before it
  uint32_t step;           // where the next window of the piece begins, in initial ids
};

template <class Id>
struct alignas(64) Scratch {
  static constexpr unsigned kCapacity = kBatchCapacity<Id>;
  static constexpr unsigned kOverflow = 32;  // ids of a piece of up to 31 bytes
  static constexpr unsigned kFirstMisses = sizeof(Id) == 4 ? 2048 : 1024;
  static constexpr unsigned kHotStep = 16;   // hot ids are copied in steps of that many
  static constexpr unsigned kWindows = sizeof(Id) == 4 ? 2048 : 1;

  uint32_t starts[kCapacity];
  Border borders[kCapacity];
  Id hot_ids[kCapacity + kHotStep];  // of each piece; undefined if the hot table has none
  // The pieces that are not in the hot table, and what belongs to each of those.
  uint32_t cold_pieces[kCapacity];
  PieceKey keys[kCapacity];
  PieceValue<Id> values[kCapacity];
  alignas(64) Id overflow[kCapacity][kOverflow];
  uint32_t lines[kCapacity];
  uint32_t misses[kCapacity];
  uint16_t first_misses[kFirstMisses];  // by line: the first miss and 1, or 0
  Repeat repeats[kCapacity];
  uint32_t medium_misses[kCapacity];
  uint32_t unmerged[3][kCapacity];  // of up to 8 bytes, of up to 16, of more
  Window<Id> windows[kWindows];     // those of a piece are neighbours
};

template <class Id>
struct State {
  State(const Vocabulary& vocabulary, size_t table_bytes);

  MergeTables<Id> merges;
  WholeTokens whole_tokens;
  Junctions junctions;
  Buffer character_buffer;
  Buffer start_buffer;  // these two only with 32-bit ids
  CharacterBorders borders;
  SpaceRuns<Id> spaces;
  HotTable hot;
  uint32_t num_batches = 0;
  PieceTables<Id> pieces;
  Workspace merge_workspace;
  Workspace tail_workspace;
  Scratch<Id> scratch;

  PENSTOK_INLINE const CharacterIds<Id>* characters() const {
    return character_buffer.as<CharacterIds<Id>>();
  }
  PENSTOK_INLINE const CharacterIds<Id>* characters_after_space() const {
    return characters() + kCharacters;
  }
  PENSTOK_INLINE const CharacterStart* character_starts() const {
    return start_buffer.as<CharacterStart>();
  }

 private:
  void fill_characters(const Vocabulary& vocabulary);
  unsigned joined_leads(const uint8_t* character) const;
  static void fill_start(CharacterStart& start, const Id* ids, unsigned count, unsigned length,
                         bool starts_merged);
  void fill_space_runs();
};

extern template struct MergeTables<uint16_t>;
extern template struct MergeTables<uint32_t>;
extern template struct State<uint16_t>;
extern template struct State<uint32_t>;

}  // namespace penstok::kernel
