// Encodes a few thousand pieces: looks all of them up, merges the misses, writes the ids in order.
#pragma once

#include <type_traits>

#include "bpe/initial_ids.hpp"
#include "bpe/merge_short.hpp"
#include "bpe/merge_wave.hpp"
#include "bpe/merge_wide_wave.hpp"
#include "bpe/piece_cache.hpp"
#include "bpe/state.hpp"
#include "bpe/uncommon_pieces.hpp"
#include "bpe/windows.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// Piece i is base[starts[i] .. starts[i + 1]). Borders are not text but the gaps between documents.
template <class Id>
struct PieceBatch {
  const uint8_t* base;
  const uint32_t* starts;
  size_t count;
  Border* borders;
  size_t num_borders;
  Id eot_id, bos_id;

  PENSTOK_INLINE const uint8_t* piece(size_t i) const { return base + starts[i]; }
  PENSTOK_INLINE size_t length(size_t i) const { return starts[i + 1] - starts[i]; }
};

#if PENSTOK_HAS_LANES
struct NoWave {};  // 16-bit ids: merge_wave.hpp
template <class Id, unsigned kLanes>
using WaveOf = std::conditional_t<sizeof(Id) == 4, WideMergeWave<kLanes>, NoWave>;
#endif

template <class Id>
class PieceBatchEncoder {
 public:
  PENSTOK_INLINE PieceBatchEncoder(State<Id>& state, const PieceBatch<Id>& batch)
      : state_(state), scratch_(state.scratch), batch_(batch) {}

  // Writes the ids and returns the position after the last.
  PENSTOK_INLINE Id* encode(Id* out) {
    look_up_hot();
    make_keys();
    merge_misses(look_up());
    out = write(out);
    if (++state_.num_batches % kHotFillPeriod == 0) fill_hot_table();
    return out;
  }

 private:
  using Value = PieceValue<Id>;

  // Cold pieces, those that are not in the hot table, are numbered from 0. All functions after
  // look_up_hot take these numbers.
  PENSTOK_INLINE const uint8_t* piece(size_t i) const {
    return batch_.piece(scratch_.cold_pieces[i]);
  }
  PENSTOK_INLINE size_t length(size_t i) const { return batch_.length(scratch_.cold_pieces[i]); }

  // Finds the ids of hot pieces and lists the others, borders among them.
  PENSTOK_INLINE void look_up_hot() {
    const HotPieces<Id> pieces{state_.hot, batch_.base, batch_.starts, scratch_.hot_ids};
    uint32_t* cold = scratch_.cold_pieces;
    size_t from = 0;
    for (size_t i = 0;; ++i) {
      const bool is_last = i == batch_.num_borders;
      const size_t to = is_last ? batch_.count : batch_.borders[i].piece;
      cold = list_cold(pieces, from, to, cold);
      if (is_last) break;
      batch_.borders[i].cold_piece = static_cast<uint32_t>(cold - scratch_.cold_pieces);
      *cold++ = static_cast<uint32_t>(to);
      from = to + 1;
    }
    num_cold_ = static_cast<uint32_t>(cold - scratch_.cold_pieces);
  }

  // Also prefetches the lines. All of them before the first is read: without that web text is a
  // fifth slower.
  PENSTOK_INLINE void make_keys() {
    const PieceLine<Id>* const lines = state_.pieces.lines();
    const unsigned bits = state_.pieces.short_bits;
    for (size_t i = 0; i < num_cold_; ++i) {
      const PieceKey key = make_key(piece(i), length(i));
      const uint32_t line = hash_key(key, bits);
      scratch_.keys[i] = key;
      scratch_.lines[i] = line;
      __builtin_prefetch(&lines[line]);
    }
    for (size_t i = 0; i < batch_.num_borders; ++i) {
      scratch_.keys[batch_.borders[i].cold_piece] = kNeverFound;
    }
  }

  // Reads the value of every piece and lists those that have none.
  PENSTOK_INLINE size_t look_up() {
    const PieceLine<Id>* const lines = state_.pieces.lines();
    const size_t num_cold = num_cold_;
    size_t misses = 0;
    for (size_t i = 0; i < num_cold; ++i) {
      const PieceLine<Id>& line = lines[scratch_.lines[i]];
      const unsigned way = find_way(line.keys, scratch_.keys[i]);
      scratch_.values[i] = line.values[way & 1];
      scratch_.misses[misses] = static_cast<uint32_t>(i);
      misses += way >> 1;
    }
    return misses;
  }

  // Gives every miss a value: merged here if that is fastest, otherwise kNotHere or kOtherScript.
  PENSTOK_INLINE void merge_misses(size_t misses) {
    std::memset(scratch_.first_misses, 0, sizeof scratch_.first_misses);
    const Border* border = batch_.borders;
    const Border* const last_border = border + batch_.num_borders;
    for (size_t m = 0; m < misses; ++m) {
      const uint32_t i = scratch_.misses[m];
      if (border != last_border && border->cold_piece == i) {
        scratch_.values[i] = border_value(*border++);
      } else {
        add_miss(i);
      }
    }
    for (size_t m = 0; m < num_medium_; ++m) look_up_medium(scratch_.medium_misses[m]);
#if PENSTOK_HAS_LANES
    merge_in_waves();
#endif
    for (size_t r = 0; r < num_repeats_; ++r) {
      const Repeat& repeat = scratch_.repeats[r];
      scratch_.values[repeat.piece] = scratch_.values[repeat.first];
    }
  }

  // Was the same piece missed before in this batch? Then it is merged only once: new names and words
  // come in clusters. `number` is where the tables would have it.
  PENSTOK_INLINE bool is_repeated(uint32_t i, size_t number) {
    uint16_t& first_miss = scratch_.first_misses[number % Scratch<Id>::kFirstMisses];
    const uint32_t before = first_miss;
    if (before == 0 || !is_same_piece(before - 1, i)) {
      first_miss = static_cast<uint16_t>(i + 1);
      return false;
    }
    scratch_.repeats[num_repeats_++] = {i, before - 1};
    return true;
  }

  // For pieces of up to 31 bytes.
  PENSTOK_INLINE bool is_same_piece(uint32_t i, uint32_t j) const {
    const PieceKey &a = scratch_.keys[i], &b = scratch_.keys[j];
    if (((a.low ^ b.low) | (a.high ^ b.high)) != 0) return false;
    if (length(i) <= kShortPiece) return true;
    return is_equal(make_medium_key(piece(i), length(i)).words,
                    make_medium_key(piece(j), length(j)).words);
  }

  PENSTOK_INLINE void add_miss(uint32_t i) {
    if (const uint32_t id = whole_token(i); PENSTOK_UNLIKELY(id != kNoMerge)) {
      scratch_.values[i].ids[0] = static_cast<Id>(id);
      scratch_.values[i].count = 1;
    } else if (sizeof(Id) == 2 && is_other_script(i)) {
      scratch_.values[i].count = Value::kOtherScript;
      if (is_medium_word(i)) prefetch_medium(i);
    } else if (length(i) <= kShortPiece) {
      add_short(i);
    } else if (length(i) <= kMediumPiece) {
      add_medium(i);
    } else if (sizeof(Id) == 4 && mostly_non_ascii(piece(i))) {
      merge_characters(i);
    } else {
      scratch_.values[i].count = Value::kNotHere;
    }
  }

  // Are most of the first eight bytes not ASCII? Asked first, because that is predictable, which
  // the length of a piece in another script is not.
  PENSTOK_INLINE bool is_other_script(uint32_t i) const {
    const size_t bytes = length(i) < 8 ? length(i) : 8;
    return 2 * count_bits(load64(piece(i)) & kTopBits & bits_below(8 * bytes)) > bytes;
  }

  // In scripts of two bytes per character (Cyrillic, Greek, Arabic) these are words, and repeat.
  PENSTOK_INLINE bool is_medium_word(size_t i) const {
    const uint8_t* const p = piece(i);
    return p[p[0] == ' '] < 0xE0 && length(i) > kShortPiece && length(i) <= kMediumPiece;
  }

  PENSTOK_INLINE uint32_t whole_token(uint32_t i) const {
    return state_.whole_tokens.find(piece(i), length(i));
  }

  PENSTOK_INLINE Value border_value(const Border& border) const {
    Value value{};
    if (border.has_eot) value.ids[value.count++] = batch_.eot_id;
    if (border.has_bos) value.ids[value.count++] = batch_.bos_id;
    return value;
  }

  PENSTOK_INLINE void add_short(uint32_t i) {
    const auto bytes = static_cast<unsigned>(length(i));
    const PieceKey& key = scratch_.keys[i];
    const unsigned padding = kShortPiece - bytes;
    const unsigned high =
        count_bits(key.low & kTopBits) + count_bits(key.high & kTopBits) - padding;
    if (is_repeated(i, scratch_.lines[i])) {
      return;
    } else if (sizeof(Id) == 4 && high > 0) {
      merge_characters(i);
    } else {
      merge_bytes(i);
    }
  }

  PENSTOK_INLINE void add_medium(uint32_t i) {
    const uint8_t* p = piece(i);
    if (p[1] == ' ' && is_run_of_spaces(p, length(i))) {
      const MergeTables<Id>& merges = state_.merges;
      scratch_.values[i] = run_value(merges.byte_id(p[0]), merges.byte_id(' '), length(i));
    } else if (p[0] == ' ' && p[1] == ' ') {
      scratch_.values[i].count = Value::kNotHere;
    } else {
      prefetch_medium(i);
      scratch_.medium_misses[num_medium_++] = i;
    }
  }

  // Is a piece of 17 to 31 bytes a space or a line break, then spaces, and each of its bytes an id?
  PENSTOK_INLINE bool is_run_of_spaces(const uint8_t* p, size_t length) const {
    if constexpr (sizeof(Id) == 4) return false;
    const uint8_t* const end = p + length;
    const uint64_t others = (load64(p + 1) ^ kEightSpaces) | (load64(p + 9) ^ kEightSpaces) |
                            (load64(end - 16) ^ kEightSpaces) | (load64(end - 8) ^ kEightSpaces);
    if (others != 0 || state_.spaces.count[length] != length) return false;
    return p[0] == ' ' || (p[0] == '\n' && !state_.junctions.bytes_touch('\n', ' '));
  }

  // Pieces of the second table have no line in the first: `lines` gets their number in the second.
  PENSTOK_INLINE void prefetch_medium(uint32_t i) {
    scratch_.lines[i] = medium_number(state_.pieces, make_medium_key(piece(i), length(i)));
    __builtin_prefetch(&state_.pieces.medium()[scratch_.lines[i]]);
  }

  PENSTOK_INLINE void look_up_medium(uint32_t i) {
    const uint8_t* p = piece(i);
    const uint32_t number = scratch_.lines[i];
    const MediumEntry<Id>& entry = state_.pieces.medium()[number];
    if (holds(entry, make_medium_key(p, length(i)))) {
      overflow(i, entry.ids, entry.count, sizeof entry.ids);
    } else if (is_repeated(i, number)) {
      return;
    } else if (sizeof(Id) == 4 && mostly_non_ascii(p)) {
      merge_characters(i);
    } else {
      merge_bytes(i);
    }
  }

  // Merges a piece of up to 31 bytes; if there are lanes, later together with others.
  PENSTOK_INLINE void merge_bytes(uint32_t i) {
    const size_t bytes = length(i);
#if PENSTOK_HAS_LANES
    const bool is_medium = bytes > kShortPiece;
    if constexpr (sizeof(Id) == 2) {
      const unsigned list = is_medium + (bytes > kShortPiece / 2);
      scratch_.unmerged[list][num_unmerged_[list]++] = i;
    } else if (is_medium) {
      medium_wave_.add(state_.merges, piece(i), bytes, i);
      if (medium_wave_.is_full()) merge_wave(medium_wave_);
    } else {
      short_wave_.add(state_.merges, piece(i), bytes, i);
      if (short_wave_.is_full()) merge_wave(short_wave_);
    }
#else
    Id ids[kShortMerge];
    keep(i, ids, merge_plain(state_.merges, piece(i), static_cast<unsigned>(bytes), ids));
#endif
  }

  // Non-ASCII text with 32-bit ids: merging starts from characters. (16-bit ids mean a small
  // vocabulary, which has so many free junctions that dividing at them is faster.)
  PENSTOK_INLINE void merge_characters(uint32_t i) {
    InitialIds<Id> initial;
    InitialIdReader<Id> reader(state_, piece(i), length(i));
    reader.fill(initial);
    if (!reader.is_at_end() || initial.count > kShortMerge) {
      merge_windows(i, reader, initial);
    } else if (initial.joints == 0) {
      keep(i, initial.ids, initial.count);
    } else {
      merge_initial_ids(i, initial);
    }
  }

  PENSTOK_INLINE void merge_initial_ids(uint32_t i, const InitialIds<Id>& initial) {
#if PENSTOK_HAS_LANES
    if constexpr (sizeof(Id) == 4) {
      add_initial_ids(initial, initial.count, i);
    }
#else
    Id ids[kShortMerge];
    keep(i, ids, merge_initial_ids_plain(state_.merges, initial.ids, initial.count, ids));
#endif
  }

  // Merges a piece of too many initial ids, of which `initial` has the first.
  PENSTOK_INLINE void merge_windows(uint32_t i, InitialIdReader<Id>& reader,
                                    InitialIds<Id>& initial) {
    scratch_.values[i].count = Value::kNotHere;
#if PENSTOK_HAS_LANES
    if constexpr (sizeof(Id) == 4) {
      const uint32_t first = num_windows_;
      if (length(i) / kWindowStep >= Scratch<Id>::kWindows - first) return;  // too long
      for (;;) {
        const bool is_last = reader.is_at_end() && initial.count <= kMaxInitialIds;
        const WindowSize size = is_last ? WindowSize{initial.count, 0} : size_of_window(initial);
        scratch_.windows[num_windows_].step = size.step;
        add_initial_ids(initial, size.count, kFirstWindowTag + num_windows_++);
        if (is_last) break;
        initial.drop(size.step);
        reader.fill(initial);
      }
      scratch_.values[i].ids[0] = first;
      scratch_.values[i].ids[1] = num_windows_ - first;
      scratch_.values[i].count = Value::kInWindows;
    }
#else
    static_cast<void>(reader);
    static_cast<void>(initial);
#endif
  }

  // Stores a result that is too long for a Value.
  PENSTOK_INLINE void overflow(uint32_t i, const Id* ids, size_t count, size_t bytes) {
    std::memcpy(scratch_.overflow[num_overflows_], ids, bytes);
    scratch_.values[i].ids[0] = static_cast<Id>(num_overflows_++);
    scratch_.values[i].ids[1] = static_cast<Id>(count);
    scratch_.values[i].count = Value::kInOverflow;
  }

#if PENSTOK_HAS_LANES
  PENSTOK_INLINE void merge_in_waves() {
    if constexpr (sizeof(Id) == 2) {
      // The shortest first: loading them takes half as long.
      uint32_t* const all = scratch_.unmerged[0];
      uint32_t* end = all + num_unmerged_[0];
      for (unsigned list = 1; list < 3; ++list) {
        std::memcpy(end, scratch_.unmerged[list], num_unmerged_[list] * sizeof(uint32_t));
        end += num_unmerged_[list];
      }
      merge_listed(all, static_cast<size_t>(end - all));
    } else {
      merge_wave(short_wave_);
      merge_wave(medium_wave_);
      merge_wave(long_wave_);
    }
  }

  // Merges the first `count` initial ids together with others, later.
  PENSTOK_INLINE void add_initial_ids(const InitialIds<Id>& initial, unsigned count, uint32_t tag) {
    const auto add_to = [&](auto& wave) __attribute__((always_inline)) {
      wave.add(state_.merges, initial, count, tag);
      if (wave.is_full()) merge_wave(wave);
    };
    if (count <= 16) {
      add_to(short_wave_);
    } else if (count <= 32) {
      add_to(medium_wave_);
    } else {
      add_to(long_wave_);
    }
  }

  PENSTOK_INLINE void merge_listed(const uint32_t* unmerged, size_t num_unmerged) {
    MergeWave wave(state_.merges);
    wave.merge(
        unmerged, num_unmerged,
        [&](uint32_t i) __attribute__((always_inline)) {
          return PieceText{piece(i), static_cast<unsigned>(length(i))};
        },
        [&](uint32_t i, const Id* ids, unsigned count) __attribute__((always_inline)) {
          keep(i, ids, count);
        });
  }

  template <class Wave>
  inline __attribute__((noinline)) void merge_wave(Wave& wave) {
    const auto done = [&](uint32_t tag, const Id* ids, unsigned count, uint64_t starts)
                          __attribute__((always_inline)) {
      if (tag < kFirstWindowTag) {
        keep(tag, ids, count);
      } else {
        keep_window(tag - kFirstWindowTag, ids, starts);
      }
    };
    wave.merge(state_.merges, done);
  }
#endif

  // Stores the ids of a piece, for this batch and for later ones.
  PENSTOK_INLINE void keep(uint32_t i, const Id* ids, unsigned count) {
    const size_t bytes = length(i);
    if (bytes <= kShortPiece) {
      const Value value = short_value(ids, count);
      // A longer result is stored as kNotHere: the next time it comes from the medium table.
      store_short(state_.pieces, scratch_.lines[i], scratch_.keys[i], value);
      if (PENSTOK_LIKELY(value.count != Value::kNotHere)) {
        scratch_.values[i] = value;
        return;
      }
    }
    if (bytes <= kMediumPiece) {
      const MediumKey key = make_medium_key(piece(i), bytes);
      store_medium(medium_entry(state_.pieces, key), key, ids, count);
    }
    overflow(i, ids, count, kShortMerge * sizeof(Id));
  }

  PENSTOK_INLINE void keep_window(uint32_t number, const Id* ids, uint64_t starts) {
    Window<Id>& window = scratch_.windows[number];
    std::memcpy(window.ids, ids, sizeof window.ids);
    window.starts = starts;
  }

  PENSTOK_INLINE Id* write(Id* out) {
    const Id* const hot_ids = scratch_.hot_ids;
    const uint32_t* const cold_pieces = scratch_.cold_pieces;
    const Value* const values = scratch_.values;
    const size_t num_cold = num_cold_;
    size_t done = 0;
    for (size_t i = 0; i < num_cold; ++i) {
      const size_t cold = cold_pieces[i];
      out = put_hot(hot_ids + done, cold - done, out);
      done = cold + 1;
      const Value& value = values[i];
      const size_t count = value.count;
      if (PENSTOK_LIKELY(count <= Value::kInline)) {
        std::memcpy(out, &value, sizeof value);
        out += count;
      } else if (value.count == Value::kRun) {
        out = put_run(value, out);
      } else if (is_packed(value)) {
        out = unpack(value, out);
      } else if (value.count == Value::kInOverflow) {
        std::memcpy(out, scratch_.overflow[value.ids[0]], sizeof scratch_.overflow[0]);
        out += value.ids[1];
      } else if (value.count == Value::kOtherScript) {
        out = encode_other_script(i, out);
      } else {
        out = encode_rest(i, out);
      }
    }
    return put_hot(hot_ids + done, batch_.count - done, out);
  }

  // Writes the ids of hot pieces.
  PENSTOK_INLINE Id* put_hot(const Id* from, size_t count, Id* out) const {
    constexpr size_t kStep = Scratch<Id>::kHotStep;
    std::memcpy(out, from, kStep * sizeof(Id));
    for (size_t at = kStep; PENSTOK_UNLIKELY(at < count); at += kStep) {
      std::memcpy(out + at, from + at, kStep * sizeof(Id));
    }
    return out + count;
  }

  // Moves short pieces that are one token to the hot table and replaces what was there. That is
  // done only for some batches, which is enough for what is frequent.
  inline __attribute__((noinline)) void fill_hot_table() {
    for (size_t i = 0; i < num_cold_; ++i) {
      const uint32_t bits = HotTable::bits_of(static_cast<uint32_t>(length(i)));
      const bool is_border = (scratch_.keys[i].low & 0xFF) == 0xFF;
      if (bits == 0 || is_border || scratch_.values[i].count != 1) continue;
      state_.hot.store(HotTable::mix(piece(i), bits), scratch_.values[i].ids[0]);
    }
  }

  // The pieces not handled above: long ones and runs of spaces.
  PENSTOK_INLINE Id* encode_rest(size_t i, Id* out) {
    if constexpr (sizeof(Id) == 4) {
      const Value& value = scratch_.values[i];
      if (value.count == Value::kInWindows) {
        Id* const end = put_windows(scratch_.windows + value.ids[0], value.ids[1], out);
        if (PENSTOK_LIKELY(end != nullptr)) return end;
      }
    }
    return encode_uncommon(state_, piece(i), length(i), out);
  }

  // With 16-bit ids dividing at junctions is faster than merging (see merge_characters).
  PENSTOK_INLINE Id* encode_other_script(size_t i, Id* out) {
    if (is_medium_word(i)) return encode_medium_word(i, out);
    Id* const end = encode_at_junctions(state_, piece(i), length(i), out);
    const auto count = static_cast<size_t>(end - out);
    if (length(i) <= kShortPiece && count <= Value::kInline) {
      store_short(state_.pieces, scratch_.lines[i], scratch_.keys[i], short_value(out, count));
    }
    return end;
  }

  PENSTOK_INLINE Id* encode_medium_word(size_t i, Id* out) {
    const MediumKey key = make_medium_key(piece(i), length(i));
    MediumEntry<Id>& entry = state_.pieces.medium()[scratch_.lines[i]];
    if (holds(entry, key)) {
      std::memcpy(out, entry.ids, sizeof entry.ids);
      return out + entry.count;
    }
    Id* const end = encode_at_junctions(state_, piece(i), length(i), out);
    store_medium(entry, key, out, static_cast<size_t>(end - out));
    return end;
  }

  static constexpr unsigned kHotFillPeriod = 32768 / kBatchPieces<Id>;  // batches
  static constexpr uint32_t kFirstWindowTag = kBatchCapacity<Id>;  // lower tags are pieces
  static constexpr PieceKey kNeverFound = {~uint64_t{0}, ~uint64_t{0}};
  static constexpr uint64_t kTopBits = 0x8080808080808080ull;
  static constexpr uint64_t kEightSpaces = 0x2020202020202020ull;

  State<Id>& state_;
  Scratch<Id>& scratch_;
  const PieceBatch<Id> batch_;
#if PENSTOK_HAS_LANES
  WaveOf<Id, 16> short_wave_;
  WaveOf<Id, 32> medium_wave_;
  WaveOf<Id, 64> long_wave_;
#endif
  uint32_t num_cold_ = 0;
  uint32_t num_medium_ = 0;
  uint32_t num_unmerged_[3] = {};
  unsigned num_overflows_ = 0;
  unsigned num_repeats_ = 0;
  uint32_t num_windows_ = 0;
};

}  // namespace penstok::kernel::PENSTOK_ISA
