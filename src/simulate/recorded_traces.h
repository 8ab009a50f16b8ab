// recorded_traces: expert traces of this engine's own measurements (docs/FORMAT.md has the format).
//
// The drive ladder's model (7 layers of 28 experts, 26 tokens after a prompt of one) and k3-slice (4 layers of 96, a
// prompt of 8 and 24 tokens). Constants.
#pragma once

#include <string_view>

namespace deltafin::simulate {

extern const std::string_view kLadderTrace;
extern const std::string_view kSliceTrace;

}  // namespace deltafin::simulate
