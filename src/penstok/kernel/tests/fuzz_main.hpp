// The main functions of the fuzzers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstok::kernel {

// Calls run(arguments) and returns the exit code: that of `run`, or 2 for an error, which is printed.
template <class Run>
int fuzz_main(int argc, char** argv, Run run) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}

// The same for fuzzers with no other options than [--rounds N] [--seed N]: calls round(seed) until
// one returns false.
template <class Round>
int fuzz_rounds(int argc, char** argv, size_t rounds, Round round) {
  return fuzz_main(argc, argv, [=](const std::vector<std::string>& arguments) mutable {
    uint64_t seed = 1;
    for (size_t i = 0; i < arguments.size(); i += 2) {
      const bool is_known = arguments[i] == "--rounds" || arguments[i] == "--seed";
      if (!is_known || i + 1 == arguments.size()) {
        throw std::runtime_error("unknown option, or one without a number: " + arguments[i]);
      }
      (arguments[i] == "--rounds" ? rounds : seed) = std::stoull(arguments[i + 1]);
    }
    for (size_t i = 0; i < rounds; ++i) {
      if (round(seed + i)) continue;
      std::printf("DIFFERS: seed %llu\n", static_cast<unsigned long long>(seed + i));
      return 1;
    }
    std::printf("%zu rounds: all as expected\n", rounds);
    return 0;
  });
}

}  // namespace penstok::kernel
