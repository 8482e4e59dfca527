#include "text/find.hpp"

#include <algorithm>

namespace penstok::kernel {
namespace {

// How common a byte is in text: punctuation is rare, but not in code; then letters and digits, then
// white space. Of `<|endoftext|>`, the bar is half as common in code as the angle bracket.
unsigned commonness(uint8_t byte) {
  const uint8_t folded = byte | 0x20;
  if (byte == ' ' || byte == '\n') return 3;
  if ((folded >= 'a' && folded <= 'z') || (byte >= '0' && byte <= '9')) return 2;
  return byte == '<' || byte == '>' ? 1 : 0;
}

size_t rarest_byte(const uint8_t* wanted, size_t wanted_bytes) {
  size_t rarest = 0;
  for (size_t i = 1; i < wanted_bytes; ++i) {
    if (commonness(wanted[i]) < commonness(wanted[rarest])) rarest = i;
  }
  return rarest;
}

}  // namespace

size_t find_all(const uint8_t* text, size_t start, size_t end, const uint8_t* wanted,
                size_t wanted_bytes, int64_t* out, size_t capacity) {
  if (wanted_bytes == 0 || end < start || end - start < wanted_bytes) return 0;
  const size_t probe = rarest_byte(wanted, wanted_bytes);
  const uint8_t* at = text + start + probe;
  const uint8_t* const last = text + end - wanted_bytes + probe;  // for the probe
  size_t found = 0;
  while (found < capacity && at <= last) {
    const void* hit = std::memchr(at, wanted[probe], static_cast<size_t>(last - at) + 1);
    if (hit == nullptr) break;
    at = static_cast<const uint8_t*>(hit);
    if (std::memcmp(at - probe, wanted, wanted_bytes) == 0) {
      out[found++] = at - probe - text;
      at += wanted_bytes;
    } else {
      ++at;
    }
  }
  return found;
}

template <class Id>
size_t find_ids(const Id* ids, size_t count, Id wanted, uint32_t* out, size_t capacity) {
  constexpr size_t kStep = 64;
  size_t found = 0, at = 0;
  for (; at + kStep <= count; at += kStep) {
    // A loop without branches, which compilers turn into vector instructions.
    uint8_t equal[kStep];
    uint8_t any = 0;
    for (size_t i = 0; i < kStep; ++i) {
      equal[i] = ids[at + i] == wanted;
      any |= equal[i];
    }
    if (!any) continue;
    for (size_t word = 0; word < kStep; word += 8) {
      for (uint64_t left = load64(equal + word); left != 0; left &= left - 1) {
        if (found == capacity) return found;
        out[found++] = static_cast<uint32_t>(at + word + lowest_bit(left) / 8);
      }
    }
  }
  for (; at < count && found < capacity; ++at) {
    out[found] = static_cast<uint32_t>(at);
    found += ids[at] == wanted;
  }
  return found;
}

template size_t find_ids(const uint16_t*, size_t, uint16_t, uint32_t*, size_t);
template size_t find_ids(const uint32_t*, size_t, uint32_t, uint32_t*, size_t);

FoundDocuments find_documents(const uint8_t* text, size_t start, size_t end,
                              const DocumentRules& rules, int64_t* starts, int64_t* ends,
                              int64_t* heads, size_t capacity) {
  FoundDocuments found;
  found.num_found =
      find_all(text, start, end, rules.separator, rules.separator_bytes, ends, capacity);
  int64_t at = static_cast<int64_t>(start);
  // Kept documents move to the front; `ends` is read ahead of where it is written.
  for (size_t i = 0; i < found.num_found; ++i) {
    const int64_t separator = ends[i];
    const bool has_return = rules.drops_returns && separator > at && text[separator - 1] == '\r';
    const int64_t document_end = separator - has_return;
    if (document_end > at || (i == 0 && rules.keeps_first)) {
      found.is_first_kept |= i == 0;
      starts[found.num_kept] = at;
      ends[found.num_kept] = document_end;
      heads[found.num_kept] = std::min(document_end, at + rules.head_bytes);
      ++found.num_kept;
    }
    at = separator + static_cast<int64_t>(rules.separator_bytes);
  }
  found.next = at;
  return found;
}

}  // namespace penstok::kernel
