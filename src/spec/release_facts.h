// release_facts.h: what the released Kimi K3 weighs, for what is said before there is a model to look at.
//
// Constants of the release only; everything about a model that is here comes from its own ModelSpec. Sources: the
// release's index (metadata.total_size) and the table of its tensors; tests compare them with sums over our own table.
#pragma once

#include <cstdint>

namespace deltafin::release {

inline constexpr uint64_t kBytes = 1'560'860'324'864;     // all tensors of all shards
inline constexpr uint64_t kDenseBytes = 113'509'540'864;  // what every token reads
// By pack --dense: 12 bits for each of 16. What cannot be told in 12 is stored whole, so a little more in practice.
inline constexpr uint64_t kPackedDenseBytes = kDenseBytes / 4 * 3;
// By setup --dense-only: dense weights, vision weights, index, headers and tokenizer, rounded up.
inline constexpr uint64_t kDenseOnlyBytes = 115'000'000'000;
// One shard; setup --pack-to keeps two of them beside the dense part.
inline constexpr uint64_t kLargestShardBytes = 16'990'092'800;

}  // namespace deltafin::release
