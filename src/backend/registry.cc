#include "backend/registry.h"

namespace deltafin {

Result<std::unique_ptr<Backend>> CreateBackend(const std::vector<BackendFactory>& table, const BackendOptions& options) {
  const std::string wanted = options.device == "auto" ? table.front().device : options.device;
  std::string known = "auto";
  for (const BackendFactory& factory : table) {
    if (factory.device == wanted) return factory.create(options);
    known += ", " + factory.device;
  }
  return Fail(ErrorCode::kInvalidArgument, "--device ", options.device, ": expected one of ", known);
}

}  // namespace deltafin
