// Feeds random CSV, valid and damaged, to the extractor and the scanner, in buffers of exactly the
// size they may touch; meant to be built with PENSTOK_KERNEL_SANITIZE.
//
//   fuzz_csv [--rounds N] [--seed N]
//
// It checks that the texts of valid CSV are those it was made from; that the scanner finds the
// records of the extractor, however the CSV is divided; and that both agree with a reader of one
// byte at a time. The Python tests check which records are refused, and why.
#include <algorithm>
#include <string>

#include "tests/fuzz_formats.hpp"
#include "tests/fuzz_main.hpp"
#include "text/csv_records.hpp"
#include "text/csv_scan.hpp"

namespace penstok::kernel {
namespace {

constexpr size_t kNumColumns = 3;

class Tables : public Chance {
 public:
  using Chance::Chance;

  std::string text() {
    std::string text;
    for (size_t i = below(below(10) == 0 ? 100 : 8); i > 0; --i) {
      text += pick({"a", "word ", "\n", "\r\n", "\"", "\"\"", ",", "\t", "\u4e16",
                    "0123456789abcdef"});
    }
    return text;
  }

  std::string field(const std::string& text) {
    const bool needs = text.find_first_of("\",\t\r\n") != std::string::npos;
    if (!needs && below(3) != 0 && !text.empty()) return text;
    std::string quoted = "\"";
    for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
  }

  const char* line_end() { return pick({"\n", "\n", "\r\n", "\n\n", "\r\n\r\n"}); }
};

struct Extract {
  CsvRecords records;
  std::string text;
};

Extract extract(const std::string& csv, size_t stop, uint8_t delimiter) {
  const Exact exact(csv), out(csv.size());
  const CsvTable table{delimiter, 1, kNumColumns};
  Extract extract{extract_csv_records(exact.data(), csv.size(), stop, table, out.data()), ""};
  extract.text = out.text(extract.records.ends.empty() ? 0 : extract.records.ends.back());
  return extract;
}

// Where lines begin that are not inside quotes, one byte at a time.
std::vector<size_t> line_starts(const std::string& csv, char delimiter) {
  std::vector<size_t> starts;
  bool is_quoted = false, at_start = true;
  for (size_t i = 0; i < csv.size(); ++i) {
    if (is_quoted) {
      if (csv[i] != '"') continue;
      if (i + 1 < csv.size() && csv[i + 1] == '"') {
        ++i;
      } else {
        is_quoted = false;
      }
    } else if (csv[i] == '"' && at_start) {
      is_quoted = true;
    }
    at_start = !is_quoted && (csv[i] == delimiter || csv[i] == '\n');
    if (!is_quoted && csv[i] == '\n') starts.push_back(i + 1);
  }
  return starts;
}

// The first line that begins behind `wanted`, with the CSV in random pieces; its size if none does.
size_t scan_to(const std::string& csv, size_t wanted, uint8_t delimiter, Tables& random) {
  CsvState state = CsvState::field_start;
  for (size_t at = 0; at < csv.size();) {
    const std::string piece = csv.substr(at, 1 + random.below(random.below(2) == 0 ? 4 : 60));
    const Exact exact(piece);
    const size_t stop = wanted < at ? 0 : std::min(wanted - at, piece.size());
    const uint8_t* const found =
        scan_csv(exact.data(), exact.data() + stop, exact.data() + piece.size(), delimiter, state);
    if (found != nullptr) return at + static_cast<size_t>(found - exact.data());
    at += piece.size();
  }
  return csv.size();
}

bool agree_on_records(const std::string& csv, uint8_t delimiter, Tables& random) {
  const std::vector<size_t> lines = line_starts(csv, static_cast<char>(delimiter));
  const Extract all = extract(csv, csv.size(), delimiter);
  if (all.records.consumed != csv.size()) return false;
  size_t num_lines = lines.size() + (lines.empty() ? !csv.empty() : lines.back() != csv.size());
  if (all.records.codes.size() + all.records.num_blank != num_lines) return false;
  for (int64_t record : all.records.records) {
    const auto at = static_cast<size_t>(record);
    if (at != 0 && std::find(lines.begin(), lines.end(), at) == lines.end()) return false;
  }
  const size_t wanted = random.below(csv.size() + 1);
  size_t expected = csv.size();
  for (size_t start : lines) {
    if (start <= wanted) continue;
    expected = start;
    break;
  }
  if (scan_to(csv, wanted, delimiter, random) != expected) return false;
  // What is read in two steps is what is read in one.
  const Extract first = extract(csv, wanted, delimiter);
  const Extract rest = extract(csv.substr(first.records.consumed), csv.size(), delimiter);
  return first.text + rest.text == all.text;
}

bool round(uint64_t seed) {
  Tables tables(seed);
  const uint8_t delimiter = tables.below(2) == 0 ? ',' : '\t';
  std::string csv, texts;
  size_t num_records = 0;
  for (size_t i = tables.below(6); i > 0; --i) {
    for (size_t column = 0; column < kNumColumns; ++column) {
      const std::string text = tables.text();
      if (column == 1) texts += text;
      csv += tables.field(text);
      if (column + 1 < kNumColumns) csv += static_cast<char>(delimiter);
    }
    if (i > 1 || tables.below(2) == 0) csv += tables.line_end();
    ++num_records;
  }
  const Extract all = extract(csv, csv.size(), delimiter);
  if (all.text != texts || all.records.codes != std::vector<uint8_t>(num_records, 0)) return false;
  return agree_on_records(csv, delimiter, tables) &&
         agree_on_records(tables.damaged(csv, "\",\n\r\ta"), delimiter, tables);
}

}  // namespace
}  // namespace penstok::kernel

int main(int argc, char** argv) {
  return penstok::kernel::fuzz_rounds(argc, argv, 50000, penstok::kernel::round);
}
