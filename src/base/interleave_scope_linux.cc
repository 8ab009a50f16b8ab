#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "base/interleave_scope.h"

namespace deltafin {
namespace {

constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;

long SetPolicy(int mode, const std::vector<unsigned long>& mask) {
  // The kernel takes one bit less than it is told.
  return syscall(SYS_set_mempolicy, mode, mask.empty() ? nullptr : mask.data(), mask.size() * kBits + 1);
}

}  // namespace

InterleaveScope::InterleaveScope(std::span<const int> nodes) {
  if (nodes.size() < 2) return;
  const std::string count = Cat(nodes.size(), " nodes, ");
  int mode = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != MPOL_DEFAULT) {
    description_ = count + "memory policy of the caller";
    return;
  }
  std::vector<unsigned long> mask(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) / kBits + 1);
  for (const int node : nodes) mask[static_cast<size_t>(node) / kBits] |= 1ul << static_cast<size_t>(node) % kBits;
  active_ = SetPolicy(MPOL_INTERLEAVE, mask) == 0;
  description_ = count + (active_ ? "interleaved" : "not interleaved");
  if (!active_)
    status_ = Fail(ErrorCode::kUnavailable, "memory cannot be spread over ", nodes.size(),
                   " nodes: ", std::strerror(errno), ": decoding will be slower (a container needs CAP_SYS_NICE)");
}

InterleaveScope::~InterleaveScope() {
  if (active_) (void)SetPolicy(MPOL_DEFAULT, {});
}

}  // namespace deltafin
