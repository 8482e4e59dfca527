#include "nfc.hpp"

namespace penstok::kernel {
namespace {

#include "nfc_classes.inc"

// What nfc_classes.inc says of a character.
constexpr unsigned kInert = 0;     // begins; is not made of others, and joins none behind it
constexpr unsigned kJoins = 1;     // begins; may join some
constexpr unsigned kMaybe = 241;   // and above: may be joined; kMaybeClass has its combining class
constexpr unsigned kNotSure = 255;
constexpr size_t kLongestCharacter = 4;
constexpr size_t kStep = 16;  // bytes of ASCII that are passed at once

PENSTOK_INLINE bool is_continuation(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

PENSTOK_INLINE unsigned class_of(uint32_t code_point) {
  return kNfcClass[kNfcPage[code_point >> 7] * 128 + (code_point & 127)];
}

PENSTOK_INLINE bool starts_ascii(const uint8_t* p) {
  return ((load64(p) | load64(p + 8)) & 0x8080808080808080ull) == 0;
}

// The characters so far: what the next one is held against.
class Before {
 public:
  // Takes the next character; false if it is not sure to stay as it is.
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
  // A mark that may be joined stays alone behind a character that joins none. (That this is not
  // made of others matters too: its last mark might have to change places with the new one.)
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
  bool is_inert_ = false;  // the last character that began
};

// Goes on through characters of one length, which follow each other in most scripts. Returns false
// where one does not pass; stops at the first that has another length, or near the end.
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
    if (!before.take(class_of(code_point))) return false;  // surrogates are never sure
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

// Goes on to the first character that begins behind `last`, where kLongestCharacter bytes can still
// be read.
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
  // The last few bytes, with zeros behind them: a character that is cut off does not pass.
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
