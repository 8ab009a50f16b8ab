#include "io/uring_engine.h"

namespace deltafin {

Result<std::unique_ptr<IoEngine>> CreateUringEngine(int) {
  return Fail(ErrorCode::kUnavailable, "io_uring: this system has none: use the pread engine");
}

}  // namespace deltafin
