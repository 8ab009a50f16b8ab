# Warnings, sanitizers and the CPU baseline: one interface target, deltafin_flags, that every target of ours links.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(DELTAFIN_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")

add_library(deltafin_flags INTERFACE)
target_include_directories(deltafin_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: a fused multiply-add happens only where a kernel asks for it, so that the same source gives the same
# bits at every optimisation level.
target_compile_options(deltafin_flags INTERFACE
  -Wall -Wextra -Wconversion -Wno-sign-conversion -fno-math-errno -ffp-contract=off)
# Warnings are errors where we test; a user's newer compiler may warn of things that ours does not.
option(DELTAFIN_WERROR "Treat warnings as errors" OFF)
if(DELTAFIN_WERROR)
  target_compile_options(deltafin_flags INTERFACE -Werror)
endif()

# x86-64: the baseline is AVX2 + FMA (Haswell, 2013). AES and PCLMUL must be named as well, or Highway 1.0.3 also generates
# its SSE4 targets, and below g++ 12.3 a scalar one that does not compile.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(deltafin_flags INTERFACE -march=x86-64-v3 -maes -mpclmul)
endif()

if(DELTAFIN_SANITIZE)
  target_compile_options(deltafin_flags INTERFACE -fsanitize=${DELTAFIN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(deltafin_flags INTERFACE -fsanitize=${DELTAFIN_SANITIZE})
endif()
