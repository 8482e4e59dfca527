// JSON strings: finds where they end, checks that they are well formed, and unescapes their text.
//
// A string is read into a sink: `SkippedString` discards it, `UnescapedString` writes the text.
// Bytes of 0x80 and above are copied unchecked; the encoder validates UTF-8.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bytes.hpp"

namespace penstok::kernel {

// ---- Plain text: everything except the quote, the backslash and control characters ----

inline bool is_plain(uint8_t byte) {
  return byte >= 0x20 && byte != '"' && byte != '\\';
}

// `find_stops` checks a step of bytes at once. In the result the lowest set bit marks the first byte
// that is not plain, as one of kStopBits; 0 means that all are.
#if defined(__SSE2__)
// Every x86-64 processor has these instructions.
constexpr size_t kStringStep = 32;
constexpr unsigned kStopBits = 1;

PENSTOK_INLINE uint64_t find_stops16(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
  const __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
  const __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
  const __m128i stops = _mm_or_si128(_mm_or_si128(control, quote), backslash);
  return static_cast<unsigned>(_mm_movemask_epi8(stops));
}

PENSTOK_INLINE uint64_t find_stops(const uint8_t* p) {
  return find_stops16(p) | find_stops16(p + 16) << 16;
}
#else
// Each subtraction sets the top bit of the bytes below a limit: `^ 2` moves the quote (0x22) right
// after the control characters, `^ backslash` makes the backslash 0. A borrow sets false bits too,
// but only above a true one.
constexpr size_t kStringStep = 8;
constexpr unsigned kStopBits = 8;

PENSTOK_INLINE uint64_t find_stops(const uint8_t* p) {
  constexpr uint64_t kOnes = 0x0101010101010101ull;
  const uint64_t word = load64(p);
  const uint64_t control_or_quote = (word ^ kOnes * 2) - kOnes * 0x21;
  const uint64_t backslash = (word ^ kOnes * '\\') - kOnes;
  return (control_or_quote | backslash) & ~word & kOnes * 0x80;
}
#endif

// ---- Sinks ----

struct SkippedString {
  bool has_escapes = false;

  void put_step(const uint8_t*, size_t) {}
  void put_byte(uint8_t) {}
  void put_escape(uint8_t) { has_escapes = true; }
  void put_code_point(uint32_t) { has_escapes = true; }
  void put_lone_surrogate() { has_escapes = true; }
};

// Text is never longer than its JSON, so a string read at offset i of a buffer may be written at
// offset i, or before, of a buffer of the same size, in whole steps.
struct UnescapedString {
  uint8_t* to;
  size_t num_lone_surrogates = 0;

  void put_step(const uint8_t* from, size_t count) {
    std::memcpy(to, from, kStringStep);
    to += count;
  }
  void put_byte(uint8_t byte) { *to++ = byte; }
  void put_escape(uint8_t byte) { *to++ = byte; }

  // Always writes four bytes, which may be more than counted: an escaped code point takes six in
  // JSON.
  void put_code_point(uint32_t c) {
    const uint32_t last = 0x80 | (c & 0x3F), middle = 0x80 | (c >> 6 & 0x3F);
    uint32_t utf8, count;
    if (c < 0x80) {
      utf8 = c, count = 1;
    } else if (c < 0x800) {
      utf8 = 0xC0 | c >> 6 | last << 8, count = 2;
    } else if (c < 0x10000) {
      utf8 = 0xE0 | c >> 12 | middle << 8 | last << 16, count = 3;
    } else {
      utf8 = 0xF0 | c >> 18 | (0x80 | (c >> 12 & 0x3F)) << 8 | middle << 16 | last << 24, count = 4;
    }
    std::memcpy(to, &utf8, sizeof utf8);
    to += count;
  }

  void put_lone_surrogate() {
    put_code_point(0xFFFD);
    ++num_lone_surrogates;
  }
};

// ---- Escapes ----

struct EscapeTables {
  uint8_t simple[256];  // the byte of escapes such as `\n`; 0: not an escape
  uint8_t hex[256];     // the value of a hexadecimal digit; 16: not a digit
};

constexpr EscapeTables make_escape_tables() {
  EscapeTables tables{};
  for (unsigned c : {'"', '\\', '/'}) tables.simple[c] = static_cast<uint8_t>(c);
  tables.simple['b'] = '\b';
  tables.simple['f'] = '\f';
  tables.simple['n'] = '\n';
  tables.simple['r'] = '\r';
  tables.simple['t'] = '\t';
  for (unsigned c = 0; c < 256; ++c) {
    const bool digit = c >= '0' && c <= '9', letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
    tables.hex[c] = static_cast<uint8_t>(digit ? c - '0' : letter ? (c | 0x20) - 'a' + 10 : 16);
  }
  return tables;
}

inline constexpr EscapeTables kEscapes = make_escape_tables();

// Each function below moves `at` past what it has read or, if it returns false, to the first
// invalid byte (`end` if the text is cut off).

PENSTOK_INLINE bool read_hex4(const uint8_t*& at, const uint8_t* end, uint32_t& value) {
  const uint8_t* const hex = kEscapes.hex;
  if (PENSTOK_LIKELY(end - at >= 4)) {
    const unsigned a = hex[at[0]], b = hex[at[1]], c = hex[at[2]], d = hex[at[3]];
    value = a << 12 | b << 8 | c << 4 | d;
    if (PENSTOK_LIKELY((a | b | c | d) < 16)) {
      at += 4;
      return true;
    }
  }
  while (at != end && hex[*at] < 16) ++at;
  return false;
}

// Reads the second half of a surrogate pair, if it comes next.
PENSTOK_INLINE bool read_low_surrogate(const uint8_t*& at, const uint8_t* end, uint32_t& value) {
  if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return false;
  const uint8_t* digits = at + 2;
  if (!read_hex4(digits, end, value) || value < 0xDC00 || value > 0xDFFF) return false;
  at = digits;
  return true;
}

template <class Sink>
PENSTOK_INLINE bool read_escape(const uint8_t*& at, const uint8_t* end, Sink& sink) {
  ++at;  // the backslash
  if (at == end) return false;
  const uint8_t simple = kEscapes.simple[*at];
  if (PENSTOK_LIKELY(simple != 0)) {
    ++at;
    sink.put_escape(simple);
    return true;
  }
  if (*at != 'u') return false;
  ++at;
  uint32_t unit, low;
  if (!read_hex4(at, end, unit)) return false;
  if (unit < 0xD800 || unit > 0xDFFF) {
    sink.put_code_point(unit);
  } else if (unit < 0xDC00 && read_low_surrogate(at, end, low)) {
    sink.put_code_point(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
  } else {
    sink.put_lone_surrogate();
  }
  return true;
}

// Reads from after the opening quote to after the closing one.
template <class Sink>
bool read_string(const uint8_t*& at, const uint8_t* end, Sink& sink) {
  for (;;) {
    while (static_cast<size_t>(end - at) >= kStringStep) {
      const uint64_t stops = find_stops(at);
      // A separate branch, because a step of known length does not have to wait for its mask.
      if (PENSTOK_LIKELY(stops == 0)) {
        sink.put_step(at, kStringStep);
        at += kStringStep;
        continue;
      }
      const size_t count = lowest_bit(stops) / kStopBits;
      sink.put_step(at, count);
      at += count;
      break;
    }
    while (at != end && is_plain(*at)) sink.put_byte(*at++);  // the last bytes of the buffer
    while (at != end && *at == '\\') {
      if (!read_escape(at, end, sink)) return false;
    }
    if (at == end) return false;
    if (*at == '"') {
      ++at;
      return true;
    }
    if (*at < 0x20) return false;
  }
}

}  // namespace penstok::kernel
