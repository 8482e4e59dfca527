// Encodes a text: documents to pieces, pieces to batches, batches to ids.
#pragma once

#include <type_traits>

#include "bpe/piece_batch.hpp"
#include "bpe/state.hpp"
#include "bpe/variant.hpp"
#include "bytes.hpp"
#include "simd/simd.hpp"
#include "text/byte_classes.hpp"

namespace penstok::kernel::PENSTOK_ISA {

// The pieces found but not yet encoded, and where their ids go.
template <class Id>
class PieceQueue {
 public:
  PENSTOK_INLINE PieceQueue(State<Id>& state, const Request<Id>& request)
      : state_(state), scratch_(state.scratch), request_(request), out_(request.out) {}

  PENSTOK_INLINE bool is_full() const { return num_starts_ >= kBatchPieces<Id>; }
  PENSTOK_INLINE Id* out() const { return out_; }

  // Pieces begin at the bits of a mask whose first bit is the byte at `base`.
  PENSTOK_INLINE void add_starts(uint64_t starts, uint32_t base) {
    num_starts_ += store_positions(scratch_.starts + num_starts_, starts, base);
  }

  // A border counts as a piece, so that batches can span documents.
  PENSTOK_INLINE void add_border(uint32_t at, bool has_eot, bool has_bos) {
    scratch_.borders[num_borders_++] = {num_starts_, has_eot, has_bos, 0};
    scratch_.starts[num_starts_++] = at;
  }

  PENSTOK_INLINE void add_end(uint32_t at) { scratch_.starts[num_starts_++] = at; }
  PENSTOK_INLINE void write(Id id) { *out_++ = id; }

  // Encodes the pieces found so far; the last start becomes the first of the next batch.
  inline __attribute__((noinline)) void flush() {
    const size_t pieces = num_starts_ - 1;
    const uint32_t last = scratch_.starts[pieces];
    const size_t in_place = pieces_with_room_after(pieces);
    const size_t borders = borders_below(in_place);
    encode_batch(request_.text, 0, in_place, 0, borders);
    if (in_place < pieces) {
      const size_t all_borders = borders_below(pieces);
      const uint8_t* copy = move_to_padded_copy(in_place, pieces, borders, all_borders);
      encode_batch(copy, in_place, pieces, borders, all_borders);
    }
    keep_last_border(pieces);
    scratch_.starts[0] = last;
    num_starts_ = 1;
  }

 private:
  // The start that is carried over may be a border.
  PENSTOK_INLINE void keep_last_border(size_t piece) {
    const bool is_border = num_borders_ > 0 && scratch_.borders[num_borders_ - 1].piece == piece;
    if (is_border) {
      scratch_.borders[0] = scratch_.borders[num_borders_ - 1];
      scratch_.borders[0].piece = 0;
    }
    num_borders_ = is_border ? 1 : 0;
  }

  PENSTOK_INLINE size_t pieces_with_room_after(size_t pieces) const {
    while (pieces > 0 && scratch_.starts[pieces] + kReadSlack > request_.size) --pieces;
    return pieces;
  }

  PENSTOK_INLINE size_t borders_below(size_t piece) const {
    size_t borders = num_borders_;
    while (borders > 0 && scratch_.borders[borders - 1].piece >= piece) --borders;
    return borders;
  }

  // Pieces near the end of the caller's buffer: the hot loops would read past it.
  PENSTOK_INLINE const uint8_t* move_to_padded_copy(size_t first, size_t last, size_t first_border,
                                                    size_t last_border) {
    const uint32_t from = scratch_.starts[first];
    const size_t bytes = scratch_.starts[last] - from;
    uint8_t* copy = state_.tail_workspace.reserve(bytes + kReadSlack);
    std::memcpy(copy, request_.text + from, bytes);
    std::memset(copy + bytes, 0, kReadSlack);
    for (size_t i = first; i <= last; ++i) scratch_.starts[i] -= from;
    for (size_t i = first_border; i < last_border; ++i) {
      scratch_.borders[i].piece -= static_cast<uint32_t>(first);
    }
    return copy;
  }

  PENSTOK_INLINE void encode_batch(const uint8_t* base, size_t first, size_t last,
                                   size_t first_border, size_t last_border) {
    const PieceBatch<Id> batch{base,
                               scratch_.starts + first,
                               last - first,
                               scratch_.borders + first_border,
                               last_border - first_border,
                               request_.eot_id,
                               request_.bos_id};
    PieceBatchEncoder<Id> encoder(state_, batch);
    out_ = encoder.encode(out_);
  }

  State<Id>& state_;
  Scratch<Id>& scratch_;
  const Request<Id>& request_;
  Id* out_;
  uint32_t num_starts_ = 0;
  uint32_t num_borders_ = 0;
};

template <class Id, class Pattern>
class DocumentEncoder {
 public:
  PENSTOK_INLINE DocumentEncoder(State<Id>& state, const Request<Id>& request)
      : request_(request), queue_(state, request) {}

  PENSTOK_INLINE Outcome encode() {
    const DocumentParts& documents = request_.documents;
    if (documents.count == 0) return {0, Outcome::kAllWellFormed};
    if (has_eot_before(0)) queue_.write(request_.eot_id);
    if (has_bos_before(0)) queue_.write(request_.bos_id);
    for (size_t i = 0; i < documents.count; ++i) {
      if (i > 0) add_border(i);
      const auto begin = static_cast<size_t>(documents.starts[i]);
      if (!add_document(begin, static_cast<size_t>(documents.ends[i]))) return {0, i};
    }
    queue_.add_end(static_cast<uint32_t>(documents.ends[documents.count - 1]));
    queue_.flush();
    if (has_eot_before(documents.count)) queue_.write(request_.eot_id);
    return {static_cast<size_t>(queue_.out() - request_.out), Outcome::kAllWellFormed};
  }

 private:
  // Is there an end-of-text id before document i (after all of them for i == count)?
  PENSTOK_INLINE bool has_eot_before(size_t i) const {
    const DocumentParts& documents = request_.documents;
    if (request_.eot_mode == EotMode::append) return i > 0 && documents.closes[i - 1];
    if (request_.eot_mode == EotMode::prepend) return i < documents.count && documents.begins[i];
    return false;
  }

  PENSTOK_INLINE bool has_bos_before(size_t i) const {
    return request_.writes_bos && request_.documents.begins[i];
  }

  PENSTOK_INLINE void add_border(size_t i) {
    queue_.add_border(static_cast<uint32_t>(request_.documents.ends[i - 1]), has_eot_before(i),
                      has_bos_before(i));
    if (queue_.is_full()) queue_.flush();
  }

  // Finds the pieces of text[begin, end); false if it is not UTF-8.
  PENSTOK_INLINE bool add_document(size_t begin, size_t end) {
    if (begin == end) return true;
    Pattern pattern = start_pattern();
    uint64_t malformed = 0;
    const uint8_t* window = window_at(begin);
    using Classes = typename Pattern::Classes;
    Classes classes = classify(window, end - begin, Classes{});
    [[maybe_unused]] uint64_t high_before = classes.high;
    for (size_t at = begin; at < end;) {
      const size_t left = end - at;
      const uint8_t* next_window = window;
      Classes next = after_the_end<Classes>();
      if (PENSTOK_LIKELY(left > kMaskBytes)) {
        next_window = window_at(at + kMaskBytes);
        next = classify(next_window, left - kMaskBytes, classes);
      } else {
        next.malformed = classes.carry.continuation;  // the document ends inside a character
      }
      malformed |= classes.malformed;
      queue_.add_starts(pattern.of(classes, next, window, left), static_cast<uint32_t>(at));
      if (PENSTOK_UNLIKELY(queue_.is_full())) {
        // Keys rely on valid UTF-8, so nothing is looked up before the text is validated.
        if (malformed | next.malformed) return false;
        queue_.flush();
      }
      at += kMaskBytes;
      classes = next;
      window = next_window;
      if constexpr (Pattern::kDividesLatin) {
        // Fewer masks will do for Latin text, which begins with ASCII after a byte of ASCII.
        const bool is_ascii = (classes.high | high_before >> 63) == 0;
        high_before = classes.high;
        if (!is_ascii || end < at + 2 * kMaskBytes) continue;
        if (malformed | classes.malformed) return false;
        const size_t stop = add_latin(pattern, at, end);
        if (stop == at) continue;
        at = stop;
        window = window_at(at);
        classes = classify(window, end - at, Classes{});
        high_before = classes.high;
      }
      if constexpr (Pattern::kClassifiesAscii) {
        if (classes.high != 0 || end < at + 3 * kMaskBytes) continue;
        if (malformed | classes.malformed) return false;
        const size_t stop = classify_and_add_ascii(pattern, at, end);
        if (stop == at) continue;
        at = stop;
        window = window_at(at);
        classes = classify(window, end - at, Classes{});
      }
    }
    return (malformed | classes.malformed) == 0;
  }

  // Finds the pieces of text[at, end) as long as the next 64 bytes are ASCII too; returns where it
  // stopped, before the end.
  inline __attribute__((noinline)) size_t classify_and_add_ascii(Pattern& pattern, size_t at,
                                                                 size_t end) {
    const uint8_t* const text = request_.text;
    AsciiClasses classes, next;
    classify_if_ascii(text + at, classes);
    for (; at + 3 * kMaskBytes <= end && classify_if_ascii(text + at + kMaskBytes, next);
         at += kMaskBytes) {
      queue_.add_starts(pattern.of(classes, next, text + at, end - at), static_cast<uint32_t>(at));
      if (PENSTOK_UNLIKELY(queue_.is_full())) queue_.flush();
      classes = next;
    }
    return at;
  }

#if PENSTOK_DIVIDES_LATIN
  // Finds the pieces of text[at, end) as long as it is Latin; returns where it stopped, between two
  // characters before the end. The 64 bytes at `at` and the one before must be ASCII.
  inline __attribute__((noinline)) size_t add_latin(Pattern& pattern, size_t at, size_t end) {
    const uint8_t* const text = request_.text;
    LatinDivider divider(text + at);
    LatinDivision division;
    for (; at + 2 * kMaskBytes <= end && divider.divide(text + at, division); at += kMaskBytes) {
      queue_.add_starts(pattern.of_latin(division, text + at, end - at), static_cast<uint32_t>(at));
      if (PENSTOK_UNLIKELY(queue_.is_full())) queue_.flush();
    }
    pattern.continue_at(text + at);
    return at;
  }
#endif

  PENSTOK_INLINE Pattern start_pattern() const {
    if constexpr (std::is_constructible_v<Pattern, const PieceBorders&>) {
      return Pattern(*request_.borders);
    } else {
      return Pattern();
    }
  }

  // At least kWindowBytes of readable memory: the text from `at` on, then zeros.
  PENSTOK_INLINE const uint8_t* window_at(size_t at) {
    if (PENSTOK_LIKELY(at + kWindowBytes <= request_.size)) return request_.text + at;
    uint8_t* window = windows_[at / kMaskBytes % 2];  // the previous one is still in use
    std::memset(window, 0, kWindowBytes);
    std::memcpy(window, request_.text + at, request_.size - at);
    return window;
  }

  const Request<Id>& request_;
  PieceQueue<Id> queue_;
  uint8_t windows_[2][kWindowBytes];
};

}  // namespace penstok::kernel::PENSTOK_ISA
