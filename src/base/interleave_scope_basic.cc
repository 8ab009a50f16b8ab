// Systems without memory nodes to choose from.
#include "base/interleave_scope.h"

namespace deltafin {

InterleaveScope::InterleaveScope(std::span<const int>) {}
InterleaveScope::~InterleaveScope() = default;

}  // namespace deltafin
