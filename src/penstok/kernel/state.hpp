// Everything an encoder owns: the read-only tables of its vocabulary, and what changes as it works.
#pragma once

#include <memory>

#include "bytes.hpp"
#include "character_starts.hpp"
#include "junctions.hpp"
#include "memory.hpp"
#include "pair_table.hpp"
#include "piece_table.hpp"
#include "vocabulary.hpp"
#include "whole_tokens.hpp"

namespace penstok::kernel {

// `Id` is uint16_t where every id is below 65,534 (GPT-2), else uint32_t. The two highest values
// are taken: kNoId marks an unused lane or an impossible merge, kRedo a rank to be looked up again.
template <class Id>
constexpr Id kNoId = static_cast<Id>(~Id{0});
template <class Id>
constexpr Id kRedo = static_cast<Id>(~Id{0} - 1);

// What two neighbouring bytes start with: the id of the first, and the rank of merging the two.
template <class Id>
struct BytePair {
  Id rank;
  Id left_id;
};

// What merging needs to know.
template <class Id>
struct MergeTables {
  explicit MergeTables(const Vocabulary& vocabulary);

  PENSTOK_INLINE Id rank_of(Id left, Id right) const {
    return static_cast<Id>(pairs.find(left, right));
  }

  PENSTOK_INLINE const BytePair<Id>& byte_pair(uint8_t left, uint8_t right) const {
    return byte_pairs[left << 8 | right];
  }
  PENSTOK_INLINE Id byte_id(uint8_t byte) const { return byte_pairs[byte << 8].left_id; }

  // May making this token make a pair of lower rank possible? (Proof 3 of vocabulary.hpp.)
  PENSTOK_INLINE bool may_fall(Id id) const {
    return falling.as<uint64_t>()[id >> 6] >> (id & 63) & 1;
  }

  PairTable pairs;
  Buffer falling;                  // a bit for every id
  BytePair<Id> byte_pairs[65536];  // [left << 8 | right]
};

// The ids of single characters, alone and after a space; unused places hold kNoId.
template <class Id>
struct CharacterIds {
  Id ids[4];
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

// One batch of pieces on its way through the encoder. It is part of the encoder, not thread_local:
// that cost 27 % in a shared library.
constexpr unsigned kBatch = 512;
constexpr unsigned kBatchRoom = kBatch + 160;  // a batch may overshoot by one 64-byte block

// A gap between two documents, which takes the place of a piece in a batch.
struct Border {
  uint32_t piece;
  bool has_eot, has_bos;  // which ids are written for it, in this order
};

template <class Id>
struct alignas(64) Scratch {
  static constexpr unsigned kOverflow = 32;  // ids of a piece of up to 31 bytes

  PieceKey keys[kBatchRoom];
  PieceValue<Id> values[kBatchRoom];
  alignas(64) Id overflow[kBatchRoom][kOverflow];
  uint32_t lines[kBatchRoom];
  uint32_t misses[kBatchRoom];
  uint32_t starts[kBatchRoom];
  Border borders[kBatchRoom];
};

template <class Id>
struct State {
  State(const Vocabulary& vocabulary, size_t table_bytes);

  MergeTables<Id> merges;
  WholeTokens whole_tokens;
  Junctions junctions;
  CharacterBorders borders;
  Buffer character_buffer;
  Buffer start_buffer;  // only with ids of 32 bits
  SpaceRuns<Id> spaces;
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
  PENSTOK_INLINE const CharacterStart<Id>* character_starts() const {
    return start_buffer.as<CharacterStart<Id>>();
  }

 private:
  void fill_characters();
  void fill_character_starts(const Vocabulary& vocabulary);
  void fill_space_runs();
};

extern template struct MergeTables<uint16_t>;
extern template struct MergeTables<uint32_t>;
extern template struct State<uint16_t>;
extern template struct State<uint32_t>;

}  // namespace penstok::kernel
