// Includes the code of one instruction set. CMake compiles `bpe/variant.cpp` once per set;
// PENSTOK_ISA is the name of the set and of the namespace of its code.
// PENSTOK_HAS_LANES: it merges in vectors; PENSTOK_DIVIDES_LATIN: it has a LatinDivider.
#pragma once

#if defined(PENSTOK_ISA_AVX512)
#define PENSTOK_ISA avx512
#define PENSTOK_HAS_LANES 1
#define PENSTOK_DIVIDES_LATIN 1
#include "simd/avx512.hpp"
#elif defined(PENSTOK_ISA_AVX2)
#define PENSTOK_ISA avx2
#define PENSTOK_HAS_LANES 1
#define PENSTOK_DIVIDES_LATIN 1
#include "simd/avx2.hpp"
#elif defined(PENSTOK_ISA_NEON)
#define PENSTOK_ISA neon
#define PENSTOK_HAS_LANES 0
#define PENSTOK_DIVIDES_LATIN 0
#include "simd/neon.hpp"
#else
#define PENSTOK_ISA portable
#define PENSTOK_HAS_LANES 0
#define PENSTOK_DIVIDES_LATIN 0
#include "simd/portable.hpp"
#endif
