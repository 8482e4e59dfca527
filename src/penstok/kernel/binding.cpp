// The Python module `penstok._kernel`.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>

#include "bpe/encoder.hpp"
#include "bpe/ranks.hpp"
#include "disk_space.hpp"
#include "text/characters.hpp"
#include "text/content_hash.hpp"
#include "text/csv_records.hpp"
#include "text/csv_scan.hpp"
#include "text/find.hpp"
#include "text/id_counts.hpp"
#include "text/json_lines.hpp"
#include "text/nfc.hpp"
#include "text/parquet_metadata.hpp"
#include "text/parquet_values.hpp"
#include "text/snappy.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstok::kernel {
namespace {

using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Positions = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Text = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PositionsOut = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BytesOut = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsOut = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using HashesOut = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NumbersOut = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

EotMode eot_mode_from(const std::string& name) {
  if (name == "append") return EotMode::append;
  if (name == "prepend") return EotMode::prepend;
  if (name == "none") return EotMode::none;
  throw std::invalid_argument("unknown end-of-text mode `" + name +
                              "`; known: append, prepend, none");
}

PatternName pattern_from(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kPatternNames); ++i) {
    if (name == kPatternNames[i]) return static_cast<PatternName>(i);
    known += (i > 0 ? ", " : "") + std::string(kPatternNames[i]);
  }
  throw std::invalid_argument("unknown pattern `" + name + "`; known: " + known);
}

std::vector<Token> tokens_from(const nb::dict& ranks) {
  std::vector<Token> tokens;
  tokens.reserve(ranks.size());
  for (auto [bytes, id] : ranks) {
    const auto key = nb::cast<nb::bytes>(bytes);
    tokens.push_back({std::string(key.c_str(), key.size()), nb::cast<uint32_t>(id)});
  }
  return tokens;
}

// Two threads in one encoder would corrupt its tables; the second one gets an error.
class OneAtATime {
 public:
  explicit OneAtATime(std::atomic<bool>& busy) : busy_(busy) {
    if (busy_.exchange(true)) throw std::runtime_error("the encoder is in use by another thread");
  }
  ~OneAtATime() { busy_ = false; }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic<bool>& busy_;
};

// The documents of one split among those of a block, packed only if others lie between them.
class SplitDocuments {
 public:
  SplitDocuments(const DocumentParts& all, const uint8_t* splits, uint8_t split) {
    const auto count = static_cast<size_t>(std::count(splits, splits + all.count, split));
    parts_ = all;
    parts_.count = count;
    if (count > 0 && count < all.count) pack(all, splits, split);
    for (size_t i = 0; i < count; ++i) {
      num_begun_ += parts_.begins[i];
      text_bytes_ += parts_.ends[i] - parts_.starts[i];
    }
  }

  const DocumentParts& parts() const { return parts_; }
  int64_t num_begun() const { return num_begun_; }
  int64_t text_bytes() const { return text_bytes_; }

 private:
  void pack(const DocumentParts& all, const uint8_t* splits, uint8_t split) {
    positions_.reset(new int64_t[2 * parts_.count]);
    flags_.reset(new bool[2 * parts_.count]);
    int64_t* const starts = positions_.get();
    int64_t* const ends = starts + parts_.count;
    bool* const begins = flags_.get();
    bool* const closes = begins + parts_.count;
    for (size_t i = 0, packed = 0; i < all.count; ++i) {
      if (splits[i] != split) continue;
      starts[packed] = all.starts[i];
      ends[packed] = all.ends[i];
      begins[packed] = all.begins[i];
      closes[packed] = all.closes[i];
      ++packed;
    }
    parts_ = {starts, ends, begins, closes, parts_.count};
  }

  DocumentParts parts_;
  std::unique_ptr<int64_t[]> positions_;
  std::unique_ptr<bool[]> flags_;
  int64_t num_begun_ = 0;
  int64_t text_bytes_ = 0;
};

// Checks what Python passes and releases the GIL while it encodes.
class PyEncoder {
 public:
  PyEncoder(const nb::dict& ranks, uint32_t eot_id, const std::string& eot, size_t table_bytes,
            const std::string& isa, const std::string& pattern, std::optional<uint32_t> bos_id,
            std::vector<uint32_t> output_ids, bool adds_space)
      : encoder_(tokens_from(ranks),
                 {eot_id, eot_mode_from(eot), table_bytes, isa, pattern_from(pattern), bos_id,
                  std::move(output_ids), adds_space}) {}

  void restart(const std::string& eot, size_t table_bytes) {
    const OneAtATime alone(busy_);
    encoder_.restart(eot_mode_from(eot), table_bytes);
  }

  std::string isa() const { return name_of(encoder_.isa()); }
  size_t id_bytes() const { return encoder_.id_bytes(); }
  uint32_t max_id() const { return encoder_.max_id(); }

  nb::bytes spell(const std::vector<uint32_t>& ids) const {
    std::string text;
    for (uint32_t id : ids) text += encoder_.find_token(id);
    return nb::bytes(text.data(), text.size());
  }
  bool is_free_junction(uint8_t left, uint8_t right) const {
    return encoder_.is_free_junction(left, right);
  }

  int64_t encode(const Text& text, const Positions& starts, const Positions& ends,
                 const Flags& begins, const Flags& closes, const IdsOut& out) {
    const DocumentParts documents = parts_from(starts, ends, begins, closes);
    check_out(out);
    const OneAtATime alone(busy_);
    const nb::gil_scoped_release released;
    const Outcome outcome =
        encoder_.encode(text.data(), text.size(), documents, out.data(), out.size());
    if (outcome.malformed_document == Outcome::kAllWellFormed) {
      return static_cast<int64_t>(outcome.num_ids);
    }
    return -1 - static_cast<int64_t>(outcome.malformed_document);
  }

  // Per split: how many ids, documents that begin, and bytes of text; nothing at all if some
  // document is not UTF-8.
  std::vector<std::array<int64_t, 3>> encode_splits(const Text& text, const Positions& starts,
                                                    const Positions& ends, const Flags& begins,
                                                    const Flags& closes, const Text& splits,
                                                    const std::vector<IdsOut>& outs) {
    const DocumentParts documents = parts_from(starts, ends, begins, closes);
    if (splits.size() != documents.count) {
      throw std::invalid_argument("starts and splits differ in length");
    }
    for (const IdsOut& out : outs) check_out(out);
    const OneAtATime alone(busy_);
    const nb::gil_scoped_release released;
    std::vector<std::array<int64_t, 3>> totals;
    for (size_t split = 0; split < outs.size(); ++split) {
      const SplitDocuments chosen(documents, splits.data(), static_cast<uint8_t>(split));
      Outcome outcome{};
      if (chosen.parts().count > 0) {
        outcome = encoder_.encode(text.data(), text.size(), chosen.parts(), outs[split].data(),
                                  outs[split].size());
        if (outcome.malformed_document != Outcome::kAllWellFormed) return {};
      }
      totals.push_back(
          {static_cast<int64_t>(outcome.num_ids), chosen.num_begun(), chosen.text_bytes()});
    }
    return totals;
  }

 private:
  static DocumentParts parts_from(const Positions& starts, const Positions& ends,
                                  const Flags& begins, const Flags& closes) {
    const size_t count = starts.size();
    if (ends.size() != count || begins.size() != count || closes.size() != count) {
      throw std::invalid_argument("starts, ends, begins and closes differ in length");
    }
    return {starts.data(), ends.data(), begins.data(), closes.data(), count};
  }

  void check_out(const IdsOut& out) const {
    const nb::dlpack::dtype wanted{static_cast<uint8_t>(nb::dlpack::dtype_code::UInt),
                                   static_cast<uint8_t>(8 * encoder_.id_bytes()), 1};
    if (out.dtype() != wanted) {
      throw std::invalid_argument("out must hold unsigned integers of " +
                                  std::to_string(encoder_.id_bytes()) + " bytes");
    }
  }

  Encoder encoder_;
  std::atomic<bool> busy_{false};
};

void hash_documents_of(const Text& text, const Positions& starts, const Positions& heads,
                       uint64_t seed, const HashesOut& out) {
  if (heads.size() != starts.size() || out.size() != starts.size()) {
    throw std::invalid_argument("starts, heads and out differ in length");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t start = starts.data()[i], head = heads.data()[i];
    if (start < 0 || head < start || static_cast<size_t>(head) > text.size()) {
      throw std::invalid_argument("a document is outside the text");
    }
  }
  const nb::gil_scoped_release released;
  hash_documents(text.data(), starts.data(), heads.data(), starts.size(), seed, out.data());
}

size_t find_all_of(const Text& text, size_t start, size_t end, const nb::bytes& wanted,
                   const PositionsOut& out) {
  if (end > text.size()) throw std::invalid_argument("the end is outside the text");
  const auto* bytes = reinterpret_cast<const uint8_t*>(wanted.c_str());
  const size_t wanted_bytes = wanted.size();
  const nb::gil_scoped_release released;
  return find_all(text.data(), start, end, bytes, wanted_bytes, out.data(), out.size());
}

size_t find_ids_of(const Ids& ids, uint32_t wanted, const NumbersOut& out) {
  const bool is_narrow = ids.dtype() == nb::dtype<uint16_t>();
  if (!is_narrow && ids.dtype() != nb::dtype<uint32_t>()) {
    throw std::invalid_argument("ids must be uint16 or uint32");
  }
  if (ids.size() > UINT32_MAX) throw std::invalid_argument("too many ids at once");
  const nb::gil_scoped_release released;
  if (!is_narrow) {
    return find_ids(static_cast<const uint32_t*>(ids.data()), ids.size(), wanted, out.data(),
                    out.size());
  }
  if (wanted > UINT16_MAX) return 0;
  return find_ids(static_cast<const uint16_t*>(ids.data()), ids.size(),
                  static_cast<uint16_t>(wanted), out.data(), out.size());
}

uint64_t count_ids_of(const Ids& ids, const NumbersOut& tables) {
  const bool is_narrow = ids.dtype() == nb::dtype<uint16_t>();
  if (!is_narrow && ids.dtype() != nb::dtype<uint32_t>()) {
    throw std::invalid_argument("ids must be uint16 or uint32");
  }
  if (tables.size() % kIdTables) throw std::invalid_argument("tables must be three of one size");
  const size_t table_size = tables.size() / kIdTables;
  const nb::gil_scoped_release released;
  if (is_narrow) {
    return count_ids(static_cast<const uint16_t*>(ids.data()), ids.size(), tables.data(),
                     table_size);
  }
  return count_ids(static_cast<const uint32_t*>(ids.data()), ids.size(), tables.data(), table_size);
}

nb::tuple find_documents_of(const Text& text, size_t start, size_t end, const nb::bytes& separator,
                            bool drops_returns, bool keeps_first, int64_t head_bytes,
                            const PositionsOut& starts, const PositionsOut& ends,
                            const PositionsOut& heads) {
  if (end > text.size()) throw std::invalid_argument("the end is outside the text");
  if (ends.size() != starts.size() || heads.size() != starts.size()) {
    throw std::invalid_argument("starts, ends and heads differ in length");
  }
  const DocumentRules rules{reinterpret_cast<const uint8_t*>(separator.c_str()), separator.size(),
                            drops_returns, keeps_first, head_bytes};
  FoundDocuments found;
  {
    const nb::gil_scoped_release released;
    found = find_documents(text.data(), start, end, rules, starts.data(), ends.data(),
                           heads.data(), starts.size());
  }
  return nb::make_tuple(found.num_kept, found.num_found, found.next, found.is_first_kept);
}

// A numpy array that owns the vector's memory.
template <class Number>
nb::ndarray<nb::numpy, Number, nb::ndim<1>> array_from(std::vector<Number>&& numbers) {
  auto* owned = new std::vector<Number>(std::move(numbers));
  const nb::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
  return {owned->data(), {owned->size()}, owner};
}

nb::tuple extract_json_lines_of(const Text& json, size_t stop, const nb::bytes& key,
                                bool takes_any, const BytesOut& out) {
  if (out.size() < json.size()) {
    throw std::invalid_argument("out must hold as many bytes as the JSON has");
  }
  const JsonPath path(std::string(key.c_str(), key.size()), takes_any);
  JsonRecords records;
  {
    const nb::gil_scoped_release released;
    records = extract_json_lines(json.data(), json.size(), stop, path, out.data());
  }
  return nb::make_tuple(array_from(std::move(records.lines)),
                        array_from(std::move(records.positions)),
                        array_from(std::move(records.starts)), array_from(std::move(records.ends)),
                        array_from(std::move(records.codes)), records.num_blank,
                        records.num_lone_surrogates, records.consumed);
}

nb::tuple extract_csv_records_of(const Text& csv, size_t stop, uint8_t delimiter, size_t column,
                                 size_t num_columns, const BytesOut& out) {
  if (out.size() < csv.size()) {
    throw std::invalid_argument("out must hold as many bytes as the CSV has");
  }
  CsvRecords records;
  {
    const nb::gil_scoped_release released;
    const CsvTable table{delimiter, column, num_columns};
    records = extract_csv_records(csv.data(), csv.size(), stop, table, out.data());
  }
  return nb::make_tuple(array_from(std::move(records.records)),
                        array_from(std::move(records.positions)),
                        array_from(std::move(records.starts)), array_from(std::move(records.ends)),
                        array_from(std::move(records.codes)), records.num_blank, records.consumed);
}

nb::tuple scan_csv_of(const Text& csv, size_t stop, uint8_t delimiter, uint8_t state) {
  if (state > static_cast<uint8_t>(CsvState::quote)) {
    throw std::invalid_argument("unknown scan state: " + std::to_string(state));
  }
  CsvState reached = static_cast<CsvState>(state);
  int64_t found = -1;
  {
    const nb::gil_scoped_release released;
    const uint8_t* const begin = csv.data();
    const uint8_t* const end = begin + csv.size();
    const uint8_t* const at = scan_csv(begin, begin + std::min(stop, csv.size()), end, delimiter,
                                       reached);
    if (at != nullptr) found = at - begin;
  }
  return nb::make_tuple(found, static_cast<uint8_t>(reached));
}

nb::list read_parquet_schema_of(const Text& footer) {
  nb::list elements;
  for (const ParquetElement& each : read_parquet_schema(footer.data(), footer.size())) {
    elements.append(nb::make_tuple(nb::bytes(each.name.data(), each.name.size()), each.type,
                                   each.repetition, each.num_children, each.converted_type,
                                   each.logical_type));
  }
  return elements;
}

nb::list read_parquet_chunks_of(const Text& footer, size_t column) {
  std::vector<ParquetChunk> chunks;
  {
    const nb::gil_scoped_release released;
    chunks = read_parquet_chunks(footer.data(), footer.size(), column);
  }
  nb::list groups;
  for (const ParquetChunk& each : chunks) {
    groups.append(nb::make_tuple(each.num_rows, each.num_values, each.start, each.compressed_bytes,
                                 each.uncompressed_bytes, each.codec));
  }
  return groups;
}

nb::tuple read_parquet_page_of(const Text& data) {
  const ParquetPage page = read_parquet_page(data.data(), data.size());
  const nb::object crc =
      page.has_crc ? nb::object(nb::int_(static_cast<uint32_t>(page.crc))) : nb::none();
  return nb::make_tuple(page.header_bytes, page.type, page.uncompressed_bytes,
                        page.compressed_bytes, crc, page.num_values, page.encoding,
                        page.level_encoding, page.num_rows, page.level_bytes,
                        page.repetition_bytes, page.is_compressed);
}

nb::tuple copy_plain_texts_of(const Text& data, size_t from, const BytesOut& out, size_t to,
                              size_t num_open, size_t max_bytes, const PositionsOut& ends) {
  if (from > data.size() || to > out.size() || data.size() - from > out.size() - to) {
    throw std::invalid_argument("out must have room for the rest of the data");
  }
  PlainPosition position{from, to, num_open, 0};
  {
    const nb::gil_scoped_release released;
    copy_plain_texts(data.data(), data.size(), out.data(), max_bytes, ends.data(), ends.size(),
                     position);
  }
  return nb::make_tuple(position.from, position.to, position.num_open, position.num_texts);
}

void decode_runs_of(const Text& data, unsigned bit_width, uint32_t limit, const NumbersOut& out) {
  const nb::gil_scoped_release released;
  decode_runs(data.data(), data.size(), bit_width, limit, out.data(), out.size());
}

void gather_texts_of(const Text& data, const Positions& offsets, const Numbers& indexes,
                     const BytesOut& out, const PositionsOut& ends) {
  if (ends.size() != indexes.size()) {
    throw std::invalid_argument("indexes and ends differ in length");
  }
  const nb::gil_scoped_release released;
  const TextList texts{data.data(), data.size(), offsets.data(), offsets.size()};
  gather_texts(texts, indexes.data(), indexes.size(), out.data(), out.size(), ends.data());
}

nb::tuple decompress_snappy_of(const Text& data, size_t start, const BytesOut& out, size_t to,
                               size_t num_open) {
  SnappyPosition position{start, to, num_open};
  {
    const nb::gil_scoped_release released;
    position = decompress_snappy(data.data(), data.size(), out.data(), out.size(), position);
  }
  return nb::make_tuple(position.from, position.to, position.num_open);
}

void check_documents(const Text& text, const Positions& starts, const Positions& ends) {
  if (ends.size() != starts.size()) {
    throw std::invalid_argument("starts and ends differ in length");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t start = starts.data()[i], end = ends.data()[i];
    if (start < 0 || end < start || static_cast<size_t>(end) > text.size()) {
      throw std::invalid_argument("a document is outside the text");
    }
  }
}

uint64_t count_characters_of(const Text& text, const Positions& starts, const Positions& ends) {
  check_documents(text, starts, ends);
  const nb::gil_scoped_release released;
  return count_characters(text.data(), starts.data(), ends.data(), starts.size());
}

void surely_nfc_of(const Text& text, const Positions& starts, const Positions& ends,
                   const BytesOut& out) {
  check_documents(text, starts, ends);
  if (out.size() != starts.size()) throw std::invalid_argument("starts and out differ in length");
  const nb::gil_scoped_release released;
  find_surely_nfc(text.data(), starts.data(), ends.data(), starts.size(), out.data());
}

nb::tuple last_merges_of(const nb::dict& ranks) {
  std::vector<Token> tokens = tokens_from(ranks);
  std::vector<uint32_t> ids, lefts, rights;
  {
    const nb::gil_scoped_release released;
    const Vocabulary vocabulary(std::move(tokens));
    auto merge = vocabulary.merges().begin();
    for (const Token& token : vocabulary.tokens()) {
      if (token.bytes.size() == 1) continue;
      const bool is_made = merge != vocabulary.merges().end() && merge->merged == token.id;
      ids.push_back(token.id);
      lefts.push_back(is_made ? merge->left : kNoMerge);
      rights.push_back(is_made ? merge->right : kNoMerge);
      if (is_made) ++merge;
    }
  }
  return nb::make_tuple(array_from(std::move(ids)), array_from(std::move(lefts)),
                        array_from(std::move(rights)));
}

nb::object parse_ranks_of(const nb::bytes& content) {
  const auto tokens = parse_ranks({content.c_str(), content.size()});
  if (!tokens) return nb::none();
  nb::dict ranks;
  for (const Token& token : *tokens) {
    ranks[nb::bytes(token.bytes.data(), token.bytes.size())] = nb::int_(token.id);
  }
  return ranks.size() == tokens->size() ? nb::object(ranks) : nb::none();
}

nb::object format_ranks_of(const nb::dict& ranks) {
  uint32_t ignored = 0;
  for (auto [bytes, id] : ranks) {
    if (!nb::try_cast<uint32_t>(id, ignored)) return nb::none();
  }
  const std::string content = format_ranks(tokens_from(ranks));
  return nb::bytes(content.data(), content.size());
}

std::vector<std::string> names_of(const std::vector<Isa>& isas) {
  std::vector<std::string> names;
  for (Isa isa : isas) names.emplace_back(name_of(isa));
  return names;
}

}  // namespace

NB_MODULE(_kernel, module) {
  module.doc() = "Byte-level BPE and text functions in C++; load it with penstok.kernel.";
  module.def(
      "built_isas", [] { return names_of(built_isas()); },
      "Instruction sets this build contains, the fastest first.");
  module.def(
      "available_isas", [] { return names_of(available_isas()); },
      "Instruction sets this build contains and this machine runs, the fastest first.");
  module.def(
      "isa", [] { return std::string(name_of(choose_isa(""))); },
      "The instruction set that an encoder uses by default.");
  module.def("room_for", &Encoder::room_for, "text_bytes"_a, "num_documents"_a,
             "How many ids the array passed to `encode` must hold; `text_bytes` is from the first "
             "document's start to the last one's end.");
  module.def("hash_documents", hash_documents_of, "text"_a, "starts"_a, "heads"_a, "seed"_a,
             "out"_a, "Set out[i] to xxh3_64(text[starts[i]:heads[i]], seed).");
  module.def("reserve_disk_space", reserve_disk_space, "file"_a, "start"_a, "num_bytes"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "Let the file system choose the blocks of a range that will be written at once, where "
             "that is faster; return whether it did.");
  module.def("find_all", find_all_of, "text"_a, "start"_a, "end"_a, "wanted"_a, "out"_a,
             "Write the offsets of `wanted` inside text[start:end] to `out` until it is full, and "
             "return their number.");
  module.def("find_ids", find_ids_of, "ids"_a, "wanted"_a, "out"_a,
             "Write the offsets of an id among uint16 or uint32 `ids` to `out` until it is full, and "
             "return their number.");
  module.def("count_ids", count_ids_of, "ids"_a, "tables"_a,
             "Add how often each id occurs to three tables, of which the sum is the count; return "
             "how many ids are not in them.");
  module.def("find_documents", find_documents_of, "text"_a, "start"_a, "end"_a, "separator"_a,
             "drops_returns"_a, "keeps_first"_a, "head_bytes"_a, "starts"_a, "ends"_a, "heads"_a,
             "Write the documents that end with a separator in text[start:end] to `starts`, `ends` "
             "and `heads`; return how many are not empty, how many there are, where the next "
             "begins, and whether the first was kept.");
  module.def("extract_json_lines", extract_json_lines_of, "json"_a, "stop"_a, "key"_a,
             "takes_any"_a, "out"_a,
             "Write the text of field `key` of the lines that begin before `stop` to `out`, and with "
             "`takes_any` the JSON text of values that are not strings; penstok.readers.jsonl names "
             "what is returned.");
  module.def("extract_csv_records", extract_csv_records_of, "csv"_a, "stop"_a, "delimiter"_a,
             "column"_a, "num_columns"_a, "out"_a,
             "Write the text of one column of the records that begin before `stop` to `out`; "
             "penstok.readers.csv names what is returned.");
  module.def("scan_csv", scan_csv_of, "csv"_a, "stop"_a, "delimiter"_a, "state"_a,
             "Return where the first record after `stop` begins, or -1, and the state there.");
  module.def("read_parquet_schema", read_parquet_schema_of, "footer"_a,
             "Return name, type, repetition, number of children, converted and logical type of each "
             "element of a parquet schema.");
  module.def("read_parquet_chunks", read_parquet_chunks_of, "footer"_a, "column"_a,
             "Return where the chunks of a column of texts are; penstok.readers.columnar names what "
             "is returned.");
  module.def("read_parquet_page", read_parquet_page_of, "data"_a,
             "Read the header of a page; penstok.readers.columnar names what is returned.");
  module.def("copy_plain_texts", copy_plain_texts_of, "data"_a, "start"_a, "out"_a, "to"_a,
             "num_open"_a, "max_bytes"_a, "ends"_a,
             "Copy the texts in data[start:] to out[to:] without the lengths before them, and write "
             "where they end; return where both are then, how many bytes of the last text are "
             "missing, and how many are complete.");
  module.def("decode_runs", decode_runs_of, "data"_a, "bit_width"_a, "limit"_a, "out"_a,
             "Fill `out` with the numbers of parquet's runs, all below `limit`.");
  module.def("gather_texts", gather_texts_of, "data"_a, "offsets"_a, "indexes"_a, "out"_a,
             "ends"_a,
             "Write data[offsets[i]:offsets[i + 1]] to `out` for each index i, and where it ends.");
  module.def("decompress_snappy", decompress_snappy_of, "data"_a, "start"_a, "out"_a, "to"_a,
             "num_open"_a,
             "Decompress Snappy's elements in data[start:] to out[to:], as far as data and room go; "
             "return where both are then, and how many bytes of a literal are missing.");
  module.def("count_characters", count_characters_of, "text"_a, "starts"_a, "ends"_a,
             "Return how many characters of UTF-8 the documents text[starts[i]:ends[i]] have.");
  module.def("surely_nfc", surely_nfc_of, "text"_a, "starts"_a, "ends"_a, "out"_a,
             "Set out[i] to 1 if text[starts[i]:ends[i]] is UTF-8 in NFC by the quick check, to 0 "
             "if it may not be.");
  module.def("last_merges", last_merges_of, "ranks"_a,
             "Return the ids of all tokens of more than one byte, in order, and of the two tokens "
             "that are merged into each; 0xFFFFFFFF twice if no merges produce it.");
  module.def("parse_ranks", parse_ranks_of, "content"_a,
             "Read the lines of a `.tiktoken` file; None if they are not all as `format_ranks` "
             "writes them, or a token is repeated.");
  module.def("format_ranks", format_ranks_of, "ranks"_a,
             "Write ranks as a `.tiktoken` file, in order; None if one does not fit 32 bits.");
  nb::class_<PyEncoder>(module, "Encoder")
      .def(nb::init<const nb::dict&, uint32_t, const std::string&, size_t, const std::string&,
                    const std::string&, std::optional<uint32_t>, std::vector<uint32_t>, bool>(),
           "ranks"_a, "eot_id"_a, "eot"_a = "append", "table_bytes"_a = kDefaultTableBytes,
           "isa"_a = "", "pattern"_a = "gpt2", "bos_id"_a = nb::none(),
           "output_ids"_a = std::vector<uint32_t>(), "adds_space"_a = false,
           "Prove that the vocabulary can be encoded exactly and build its tables.")
      .def_prop_ro("isa", &PyEncoder::isa)
      .def_prop_ro("id_bytes", &PyEncoder::id_bytes, "2 or 4: how wide the ids are written.")
      .def_prop_ro("max_id", &PyEncoder::max_id, "The largest id of a token.")
      .def("spell", &PyEncoder::spell, "ids"_a, "The bytes of tokens; nothing for unknown ids.")
      .def("restart", &PyEncoder::restart, "eot"_a, "table_bytes"_a,
           "Empty the caches and give them another size; keep the tables of the vocabulary.")
      .def("is_free_junction", &PyEncoder::is_free_junction, "left"_a, "right"_a,
           "Whether text may be divided between the two bytes.")
      .def("encode", &PyEncoder::encode, "text"_a, "starts"_a, "ends"_a, "begins"_a, "closes"_a,
           "out"_a,
           "Write the ids to `out` and return their number, or -1 - i if document i is not UTF-8.")
      .def("encode_splits", &PyEncoder::encode_splits, "text"_a, "starts"_a, "ends"_a, "begins"_a,
           "closes"_a, "splits"_a, "outs"_a,
           "Write the ids of the documents with split i to outs[i]; return per split how many ids, "
           "documents that begin, and bytes of text there are, or an empty list if a document is "
           "not UTF-8.");
}

}  // namespace penstok::kernel
