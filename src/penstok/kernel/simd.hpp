// The instruction set this file is being compiled for. CMake compiles `variant.cpp` once per set,
// with PENSTOK_ISA naming both the set and the namespace its code lives in.
#pragma once

#if defined(PENSTOK_ISA_AVX512)
#define PENSTOK_ISA avx512
#define PENSTOK_HAS_LANES 1
#include "simd_avx512.hpp"
#elif defined(PENSTOK_ISA_AVX2)
#define PENSTOK_ISA avx2
#define PENSTOK_HAS_LANES 1
#include "simd_avx2.hpp"
#elif defined(PENSTOK_ISA_NEON)
#define PENSTOK_ISA neon
#define PENSTOK_HAS_LANES 0
#include "simd_neon.hpp"
#else
#define PENSTOK_ISA portable
#define PENSTOK_HAS_LANES 0
#include "simd_portable.hpp"
#endif
