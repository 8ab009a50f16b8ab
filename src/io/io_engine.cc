#include "io/io_engine.h"

#include "io/pread_engine.h"
#include "io/uring_engine.h"

namespace deltafin {
namespace {

// A ring of the kernel holds at most 32768 entries, one of them ours.
constexpr int kMaxDepth = 4096;

}  // namespace

Result<std::unique_ptr<IoEngine>> CreateIoEngine(const IoEngineOptions& options, std::string* note) {
  if (options.depth < 1 || options.depth > kMaxDepth)
    return Fail(ErrorCode::kInvalidArgument, "I/O engine: depth: expected 1 to ", kMaxDepth, ", got ", options.depth);
  if (options.kind == "pread") return CreatePreadEngine(options.depth);
  if (options.kind != "auto" && options.kind != "uring")
    return Fail(ErrorCode::kInvalidArgument, "I/O engine: expected auto, uring or pread, got \"", options.kind, "\"");
  Result<std::unique_ptr<IoEngine>> uring = CreateUringEngine(options.depth);
  if (uring || options.kind == "uring") return uring;
  if (note != nullptr) *note = Cat("reading with pread instead of io_uring: ", uring.error().message());
  return CreatePreadEngine(options.depth);
}

}  // namespace deltafin
