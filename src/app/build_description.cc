#include "app/build_description.h"

#include "base/platform.h"

namespace deltafin {

ProgramDescription DescribeProgram() {
  std::string build = kIsDebug ? "debug checks" : "release";
  if (kIsSanitized) build += ", sanitizer";
  return {DELTAFIN_VERSION, BuildCommit(), DELTAFIN_COMPILER, build};
}

}  // namespace deltafin
