#include "text/nfc.hpp"

namespace penstok::kernel {
namespace {

#include "text/nfc_classes.inc"

// The values of nfc_classes.inc.
constexpr unsigned kInert = 0;     // a starter that neither decomposes nor composes
constexpr unsigned kJoins = 1;     // a starter that may compose with what follows
constexpr unsigned kMaybe = 241;   // and above: may compose with what precedes; see kMaybeClass
constexpr unsigned kNotSure = 255;
constexpr size_t kLongestCharacter = 4;
constexpr size_t kStep = 16;  // bytes of ASCII that are skipped at once

PENSTOK_INLINE bool is_continuation(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

PENSTOK_INLINE unsigned class_of(uint32_t code_point) {
  return kNfcClass[kNfcPage[code_point >> 7] * 128 + (code_point & 127)];
}

PENSTOK_INLINE bool starts_ascii(const uint8_t* p) {
  return ((load64(p) | load64(p + 8)) & 0x8080808080808080ull) == 0;
}

// What the check remembers of the characters before the current one.
class Before {
 public:
  // Takes the class of the next character; false if normalization may change it.
  PENSTOK_INLINE bool take(unsigned found) {
    if (PENSTOK_LIKELY(found <= kJoins)) {
      combining_class_ = 0;
      is_inert_ = found == kInert;
      return true;
    }
    return take_mark(found);
  }
  PENSTOK_INLINE void take_ascii() {
    combining_class_ = 0;
    is_inert_ = false;
  }

 private:
  // A mark that may compose is unchanged after a starter that composes with nothing. (The starter
  // must not decompose either: its last mark might have to be reordered with the new one.)
  bool take_mark(unsigned found) {
    if (found >= kMaybe) {
      if (found == kNotSure || !is_inert_) return false;
      found = kMaybeClass[found - kMaybe];
      if (found == 0) is_inert_ = false;
    }
    if (found != 0 && found < combining_class_) return false;
    combining_class_ = found;
    return true;
  }

  unsigned combining_class_ = 0;
  bool is_inert_ = false;  // of the last starter
};

// Each checks a run of characters of one length, which most scripts consist of. Returns false if
// one does not pass; stops at the first of another length, or near the end.
PENSTOK_INLINE bool pass2(const uint8_t*& p, const uint8_t* last, Before& before) {
  while (p <= last && p[0] >= 0xC2 && p[0] < 0xE0) {
    if (!is_continuation(p[1]) || !before.take(class_of(code_point2(p)))) return false;
    p += 2;
  }
  return true;
}

PENSTOK_INLINE bool pass3(const uint8_t*& p, const uint8_t* last, Before& before) {
  while (p <= last && (p[0] & 0xF0) == 0xE0) {
    const uint32_t code_point = code_point3(p);
    if (!is_continuation(p[1]) || !is_continuation(p[2]) || code_point < 0x800) return false;
    if (!before.take(class_of(code_point))) return false;  // surrogates never pass
    p += 3;
  }
  return true;
}

PENSTOK_INLINE bool pass4(const uint8_t*& p, Before& before) {
  const uint32_t code_point = code_point4(p);
  if (!is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3])) return false;
  if (p[0] > 0xF4 || code_point < 0x10000 || code_point >= kNfcEnd) return false;
  p += 4;
  return before.take(class_of(code_point));
}

// Continues to the first character that begins after `last`, where kLongestCharacter bytes can
// still be read.
PENSTOK_INLINE bool pass_all(const uint8_t*& p, const uint8_t* last, Before& before) {
  while (p <= last) {
    if (*p < 0x80) {
      before.take_ascii();
      while (p + kStep <= last && starts_ascii(p)) p += kStep;
      while (p <= last && *p < 0x80) ++p;
    } else if (*p < 0xE0) {
      if (*p < 0xC2 || !pass2(p, last, before)) return false;
    } else if (*p < 0xF0) {
      if (!pass3(p, last, before)) return false;
    } else {
      if (!pass4(p, before)) return false;
    }
  }
  return true;
}

}  // namespace

bool is_surely_nfc(const uint8_t* begin, const uint8_t* end) {
  const uint8_t* p = begin;
  Before before;
  if (static_cast<size_t>(end - begin) >= kLongestCharacter) {
    if (!pass_all(p, end - kLongestCharacter, before)) return false;
  }
  // The last few bytes, padded with zeros: a character that is cut off does not pass.
  uint8_t tail[2 * kLongestCharacter] = {};
  const auto left = static_cast<size_t>(end - p);
  std::memcpy(tail, p, left);
  const uint8_t* at = tail;
  return left == 0 || pass_all(at, tail + left - 1, before);
}

void find_surely_nfc(const uint8_t* text, const int64_t* starts, const int64_t* ends, size_t count,
                     uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = is_surely_nfc(text + starts[i], text + ends[i]) ? 1 : 0;
}

}  // namespace penstok::kernel
