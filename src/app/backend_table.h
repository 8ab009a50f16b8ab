// backend_table.h: the devices this program was linked with, for EngineContext::backends.
//
// The first row is what --device auto means. Not a search: a device is in the table or it is not there.
// Thread-safe: the table is built once and constant.
#pragma once

#include <vector>

#include "backend/registry.h"

namespace deltafin {

const std::vector<BackendFactory>& LinkedBackends();

}  // namespace deltafin
