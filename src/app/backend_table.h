// backend_table.h: the devices this program was linked with. The first row is what --device auto means.
#pragma once

#include <vector>

#include "backend/registry.h"

namespace deltafin {

const std::vector<BackendFactory>& LinkedBackends();

}  // namespace deltafin
