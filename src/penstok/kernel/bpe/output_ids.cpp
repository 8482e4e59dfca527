#include "bpe/output_ids.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace penstok::kernel {

OutputIds::OutputIds(std::vector<uint32_t> ids, const Vocabulary& vocabulary)
    : ids_(std::move(ids)) {
  if (ids_.empty()) return;
  if (ids_.size() <= vocabulary.max_id()) {
    throw std::invalid_argument("there are ids without an output id");
  }
  for (const Token& token : vocabulary.tokens()) {
    if (ids_[token.id] != kPart) continue;
    if (parts_.empty()) first_part_ = token.id;
    if (token.id != first_part_ + parts_.size() || token.bytes.size() > 3) {
      throw std::invalid_argument("the parts of characters do not follow each other");
    }
    Part part{static_cast<unsigned>(token.bytes.size()), {}};
    for (unsigned i = 0; i < part.count; ++i) {
      part.ids[i] = ids_[vocabulary.byte_ids()[static_cast<uint8_t>(token.bytes[i])]];
    }
    parts_.push_back(part);
  }
  for (uint32_t& id : ids_) {
    if (id == kPart) id = 0;
    max_id_ = std::max(max_id_, id);
  }
  if (max_id_ <= UINT16_MAX) narrow_ids_.assign(ids_.begin(), ids_.end());
}

template <class Id>
size_t OutputIds::replace(Id* ids, size_t count) const {
  constexpr size_t kStep = 4096;  // stays in the first-level cache between the two loops
  const Id* output;
  if constexpr (std::is_same_v<Id, uint16_t>) {
    output = narrow_ids_.data();
  } else {
    output = ids_.data();
  }
  const auto first = static_cast<Id>(first_part_), num_parts = static_cast<Id>(parts_.size());
  for (size_t begin = 0; begin < count; begin += kStep) {
    const size_t end = std::min(begin + kStep, count);
    unsigned found = 0;
    for (size_t i = begin; i < end; ++i) found |= static_cast<Id>(ids[i] - first) < num_parts;
    if (found) return replace_from_the_end(ids, begin, count);
    for (size_t i = begin; i < end; ++i) ids[i] = output[ids[i]];
  }
  return count;
}

// Parts become more ids than they were: beginning with the last, nothing is overwritten too early.
template <class Id>
size_t OutputIds::replace_from_the_end(Id* ids, size_t begin, size_t end) const {
  size_t more = 0;
  for (size_t i = begin; i < end; ++i) {
    const size_t part = static_cast<size_t>(ids[i]) - first_part_;
    if (part < parts_.size()) more += parts_[part].count - 1;
  }
  size_t to = end + more;
  for (size_t i = end; i-- > begin;) {
    const size_t part = static_cast<size_t>(ids[i]) - first_part_;
    if (part >= parts_.size()) {
      ids[--to] = static_cast<Id>(ids_[ids[i]]);
      continue;
    }
    for (unsigned k = parts_[part].count; k-- > 0;) {
      ids[--to] = static_cast<Id>(parts_[part].ids[k]);
    }
  }
  return end + more;
}

template size_t OutputIds::replace(uint16_t* ids, size_t count) const;
template size_t OutputIds::replace(uint32_t* ids, size_t count) const;

}  // namespace penstok::kernel
