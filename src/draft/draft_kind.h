// draft_kind: which kind of drafter a folder holds, by the model_type of its config.json.
//
// Reads that one file and checks nothing else of it. Errors: kNotFound, kIo, kCorrupt, kUnsupported (neither kind).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace deltafin {

enum class DraftKind : uint8_t {
  kDspark,  // looks at the model's rows (draft/dspark_drafter.h)
  kQwen,    // reads the text (draft/qwen_drafter.h)
};

Result<DraftKind> DraftKindOf(const std::string& folder);

}  // namespace deltafin
