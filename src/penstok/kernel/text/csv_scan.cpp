#include "text/csv_scan.hpp"

namespace penstok::kernel {
namespace {

// Outside quotes only a quote that begins a field matters, and line feeds if kStopsAtRecord.
template <bool kStopsAtRecord>
const uint8_t* scan(const uint8_t* at, const uint8_t* end, uint8_t delimiter, CsvState& state) {
  while (at != end) {
    if (state == CsvState::quoted) {
      at = find_byte(at, end, '"');
      if (at == end) return nullptr;
      ++at;
      state = CsvState::quote;
    } else if (state == CsvState::quote && *at == '"') {
      ++at;
      state = CsvState::quoted;
    } else {
      const uint8_t* const from = at;
      at = kStopsAtRecord ? find_either(at, end, '"', '\n') : find_byte(at, end, '"');
      if (at != from) {
        const bool is_start = at[-1] == delimiter || at[-1] == '\n';
        state = is_start ? CsvState::field_start : CsvState::unquoted;
      }
      if (at == end) return nullptr;
      if (kStopsAtRecord && *at == '\n') {
        state = CsvState::field_start;
        return at + 1;
      }
      ++at;
      state = state == CsvState::field_start ? CsvState::quoted : CsvState::unquoted;
    }
  }
  return nullptr;
}

}  // namespace

const uint8_t* scan_csv(const uint8_t* at, const uint8_t* stop, const uint8_t* end,
                        uint8_t delimiter, CsvState& state) {
  scan<false>(at, stop, delimiter, state);
  return scan<true>(stop, end, delimiter, state);
}

}  // namespace penstok::kernel
