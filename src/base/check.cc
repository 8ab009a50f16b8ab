#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace deltafin {

void CheckFailed(const char* condition, const char* file, int line, const char* message) noexcept {
  std::fprintf(stderr, "deltafin: internal check failed: %s (%s) at %s:%d\n", message, condition, file, line);
  std::abort();
}

}  // namespace deltafin
