// Which instruction sets this build contains and which of them this machine can run.
#pragma once

#include <string>
#include <vector>

namespace penstok::kernel {

enum class Isa { portable, neon, avx2, avx512 };

const char* name_of(Isa isa);

// The sets this build contains, the fastest first. Never empty.
std::vector<Isa> built_isas();

// The sets this build contains and this machine runs, the fastest first. Never empty.
std::vector<Isa> available_isas();

// The set called `name`; the fastest one for an empty name. Throws std::invalid_argument, listing
// the available names, for a set that is unknown, not built or not supported by the machine.
Isa choose_isa(const std::string& name);

}  // namespace penstok::kernel
