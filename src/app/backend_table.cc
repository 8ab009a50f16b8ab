#include "app/backend_table.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"

namespace deltafin {

const std::vector<BackendFactory>& LinkedBackends() {
  static const std::vector<BackendFactory> table = {{"cpu", CreateCpuBackend}, {"reference", CreateReferenceBackend}};
  return table;
}

}  // namespace deltafin
