// stream_layout: how the bytes of a shard divide into ranges: its header, dense ranges, records of experts.
//
// Pure functions of a header and a spec, so that every run divides a file alike. Errors: kCorrupt.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "checkpoint/presence_map.h"
#include "checkpoint/shard_file.h"
#include "spec/model_spec.h"

namespace deltafin {

// Longest dense range.
inline constexpr uint64_t kDenseRangeBytes = uint64_t{16} << 20;

struct StreamLayout {
  std::vector<FileRange> dense;    // ascending; the header is not among them
  std::vector<FileRange> experts;  // ascending, one a record
};

// Of file number `file`, which has `header`.
Result<StreamLayout> LayOut(const ModelSpec& spec, const SafetensorsHeader& header, int32_t file);

}  // namespace deltafin
