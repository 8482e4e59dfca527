#include "simd/isa.hpp"

#include <stdexcept>

namespace penstok::kernel {
namespace {

bool machine_has(Isa isa) {
#if defined(PENSTOK_WITH_AVX2)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("sse4.2") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                        __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("lzcnt");
  if (isa == Isa::avx2) return has_avx2;
#endif
#if defined(PENSTOK_MODEL_AVX512)
  if (isa == Isa::avx512) return has_avx2;  // the rest is emulated in plain C++
#elif defined(PENSTOK_WITH_AVX512)
  if (isa == Isa::avx512) {
    return has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  }
#endif
  static_cast<void>(isa);
  return true;  // every AArch64 machine has NEON
}

std::string joined(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(name_of(isa));
  return text;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::neon:
      return "neon";
    case Isa::portable:
      break;
  }
  return "portable";
}

std::vector<Isa> built_isas() {
  return {
#if defined(PENSTOK_WITH_AVX512)
      Isa::avx512,
#endif
#if defined(PENSTOK_WITH_AVX2)
      Isa::avx2,
#endif
#if defined(PENSTOK_WITH_NEON)
      Isa::neon,
#endif
      Isa::portable};
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (Isa isa : built_isas()) {
    if (machine_has(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa choose_isa(const std::string& name) {
  const std::vector<Isa> isas = available_isas();
  if (name.empty()) return isas.front();
  for (Isa isa : isas) {
    if (name == name_of(isa)) return isa;
  }
  throw std::invalid_argument("instruction set `" + name +
                              "` is not available on this machine; available: " + joined(isas));
}

}  // namespace penstok::kernel
