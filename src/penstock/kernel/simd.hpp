// The instruction set this file is being compiled for. CMake compiles `variant.cpp` once per set,
// with PENSTOCK_ISA naming both the set and the namespace its code lives in.
#pragma once

#if defined(PENSTOCK_ISA_AVX512)
#define PENSTOCK_ISA avx512
#define PENSTOCK_HAS_LANES 1
#include "simd_avx512.hpp"
#elif defined(PENSTOCK_ISA_AVX2)
#define PENSTOCK_ISA avx2
#define PENSTOCK_HAS_LANES 1
#include "simd_avx2.hpp"
#elif defined(PENSTOCK_ISA_NEON)
#define PENSTOCK_ISA neon
#define PENSTOCK_HAS_LANES 0
#include "simd_neon.hpp"
#else
#define PENSTOCK_ISA portable
#define PENSTOCK_HAS_LANES 0
#include "simd_portable.hpp"
#endif
