// ReferenceBackend: every operation in plain scalar C++, written to be read. The oracle of the conformance tests.
//
// Sums, exponentials and everything between the input and the output of an operation are double; what an operation
// hands back (the KDA state after every row included) is rounded to float32 once. Not fast, and it allocates small
// scratch vectors while it runs. It uses one thread: BackendOptions::threads is a maximum. Thread rule: one caller at a
// time. Errors: kInvalidArgument for an instruction set other than "auto" (there is none to choose).
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/registry.h"

namespace deltafin {

Result<std::unique_ptr<Backend>> CreateReferenceBackend(const BackendOptions& options);

}  // namespace deltafin
