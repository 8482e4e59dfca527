// A slow, simple encoder to compare the kernel with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bpe/variant.hpp"

namespace penstok::kernel::reference {

using Ranks = std::unordered_map<std::string, uint32_t>;

bool is_utf8(std::string_view text);

// The pieces of a pattern, matched character by character.
std::vector<std::string_view> split(std::string_view text, PatternName pattern);

// The ids of one document, which must be UTF-8.
std::vector<uint32_t> encode(const Ranks& ranks, std::string_view text, PatternName pattern);

}  // namespace penstok::kernel::reference
