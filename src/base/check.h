// check.h: checks for what cannot happen. A failed check is a programmer error: it prints the condition and aborts.
// Anything that a file, a user or a device can cause is a Result (result.h) instead.
//
// DFIN_CHECK is always on; DFIN_DCHECK only in debug and sanitizer builds (for checks inside loops).
#pragma once

#include "base/platform.h"

namespace deltafin {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line, const char* message) noexcept;

}  // namespace deltafin

#define DFIN_CHECK(condition, message)                                  \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::deltafin::CheckFailed(#condition, __FILE__, __LINE__, message); \
  } while (false)

#define DFIN_DCHECK(condition, message)                                 \
  do {                                                                  \
    if constexpr (::deltafin::kIsDebug) DFIN_CHECK(condition, message); \
  } while (false)
