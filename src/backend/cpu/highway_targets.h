// highway_targets.h: which Highway targets are built, and a call of one target's function chosen by `Isa`.
//
// Included before any Highway header. DFIN_CALL_FOR_ISA(isa, Function, args) calls N_<TARGET>::Function(args) in the
// enclosing namespace; it replaces Highway's dynamic dispatch, whose choice is global to the process.
// Thread rule: constants and macros only.
#pragma once

// Vectors of unknown length cannot be held in arrays, which the register tiles need.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SCALAR | HWY_EMU128)

#include <hwy/targets.h>

#if HWY_ARCH_X86
#define DFIN_CALL_FOR_ISA(isa, Function, ...) \
  (IsAvx512(isa) ? N_AVX3::Function(__VA_ARGS__) : N_AVX2::Function(__VA_ARGS__))
#else
#define DFIN_CALL_FOR_ISA(isa, Function, ...) (static_cast<void>(isa), N_NEON::Function(__VA_ARGS__))
#endif

// Full unrolling of a loop with constant bounds, so that its array of vectors lives in registers.
#if defined(__clang__)
#define DFIN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DFIN_UNROLL _Pragma("GCC unroll 32")
#endif

// Keeps a vector in a register: gcc else reads it again from memory for each use, and two reads a cycle are the limit
// of the tiles. `raw` is the vector's member of that name.
#if HWY_ARCH_X86
#define DFIN_KEEP_IN_REGISTER(raw) asm("" : "+v"(raw))
#else
#define DFIN_KEEP_IN_REGISTER(raw) asm("" : "+w"(raw))
#endif
// The same for a pointer, which gcc else turns into one address, held before the loop, for each of its uses.
#define DFIN_KEEP_POINTER(p) asm("" : "+r"(p))
