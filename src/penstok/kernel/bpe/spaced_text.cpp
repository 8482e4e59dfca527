#include "bpe/spaced_text.hpp"

#include "text/find.hpp"

namespace penstok::kernel {
namespace {

constexpr size_t kKeptBytes = size_t{8} << 20;  // blocks have about 2 MB
constexpr uint8_t kMark[] = {0xE2, 0x96, 0x81};  // U+2581

// Where the first mark inside text[begin, end) is; `end` if there is none.
size_t find_mark(const uint8_t* text, size_t begin, size_t end) {
  int64_t at;
  return find_all(text, begin, end, kMark, sizeof kMark, &at, 1) ? static_cast<size_t>(at) : end;
}

}  // namespace

void SpacedText::prepare(const uint8_t*& text, size_t& size, DocumentParts& documents) {
  if (documents.count == 0) return;
  const auto first = static_cast<size_t>(documents.starts[0]);
  const auto last = static_cast<size_t>(documents.ends[documents.count - 1]);
  const bool has_mark = find_mark(text, first, last) < last;
  if (!has_mark && !adds_space_) return;
  starts_.resize(documents.count);
  ends_.resize(documents.count);
  const size_t needed = last - first + documents.count;
  if (copy_bytes_ < needed) {
    copy_.reset();  // never both at once
    copy_.reset(new uint8_t[needed]);
    copy_bytes_ = needed;
  }
  uint8_t* const copy = copy_.get();
  uint8_t* to = copy;
  for (size_t i = 0; i < documents.count; ++i) {
    const auto begin = static_cast<size_t>(documents.starts[i]);
    const auto end = static_cast<size_t>(documents.ends[i]);
    starts_[i] = to - copy;
    if (adds_space_ && documents.begins[i] && begin < end) *to++ = ' ';
    if (has_mark) {
      to = copy_document(text, begin, end, to);
    } else {
      std::memcpy(to, text + begin, end - begin);
      to += end - begin;
    }
    ends_[i] = to - copy;
  }
  text = copy;
  size = static_cast<size_t>(to - copy);
  documents.starts = starts_.data();
  documents.ends = ends_.data();
}

void SpacedText::trim() {
  if (copy_bytes_ <= kKeptBytes) return;
  copy_.reset();
  copy_bytes_ = 0;
}

// Copies with a space in place of each mark.
uint8_t* SpacedText::copy_document(const uint8_t* text, size_t begin, size_t end,
                                   uint8_t* to) const {
  for (;;) {
    const size_t mark = find_mark(text, begin, end);
    std::memcpy(to, text + begin, mark - begin);
    to += mark - begin;
    if (mark == end) return to;
    *to++ = ' ';
    begin = mark + sizeof kMark;
  }
}

}  // namespace penstok::kernel
