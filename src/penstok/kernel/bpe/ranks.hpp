// `.tiktoken` files: each line is a token in base64, a space, and its rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpe/vocabulary.hpp"

namespace penstok::kernel {

// Reads a file that is exactly as `format_ranks` writes lines, in any order. Anything else gives
// nothing: Python reads it again, and names the line.
std::optional<std::vector<Token>> parse_ranks(std::string_view content);

std::string format_ranks(std::vector<Token> tokens);  // in order of id

}  // namespace penstok::kernel
