// The main function of the fuzzers.
#pragma once

#include <cstdio>
#include <exception>
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

}  // namespace penstok::kernel
