// setup_space: how much room a download needs, where, and whether it is there.
//
// Counts what is still to come: partial files have their bytes already. With a pack the shards pass through: room for
// two of them, the dense weights that stay, and the records on their drives. Reads sizes only. Functions without state.
// Errors: kUnavailable (needed and free, for each drive that has too little), kIo.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "setup/setup.h"
#include "setup/setup_files.h"
#include "spec/model_spec.h"

namespace deltafin {

// `spec`: needed with pack targets.
Result<std::vector<SetupSpace>> NeededSpace(const SetupOptions& options, const std::vector<SetupFile>& files,
                                            const ModelSpec* spec);
// That every drive has what the folders on it need together.
Status CheckNeededSpace(const std::vector<SetupSpace>& space);

}  // namespace deltafin
