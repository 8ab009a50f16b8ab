#include "io/drive_spans.h"

#include <algorithm>
#include <random>

#include "base/bytes.h"

namespace deltafin {

UnreadSpans::UnreadSpans(const std::vector<uint64_t>& file_bytes, uint64_t seed) {
  for (size_t file = 0; file < file_bytes.size(); ++file)
    for (uint64_t offset = 0; offset + kRegion <= file_bytes[file]; offset += kRegion)
      regions_.push_back({file, offset});
  std::mt19937_64 random(seed);
  std::shuffle(regions_.begin(), regions_.end(), random);
}

std::optional<UnreadSpans::Span> UnreadSpans::Next(uint64_t block) {
  DFIN_CHECK(block > 0 && kRegion % block == 0, "a block divides the region");
  used_ = AlignUp(used_, block);
  if (used_ == kRegion) {
    ++region_;
    used_ = 0;
  }
  if (region_ == regions_.size()) return std::nullopt;
  const Region& region = regions_[region_];
  const Span span{region.file, region.offset + used_, block};
  used_ += block;
  return span;
}

std::vector<UnreadSpans::Span> UnreadSpans::Ahead(uint64_t bytes) const {
  std::vector<Span> spans;
  uint64_t used = used_;
  for (size_t i = region_; i < regions_.size() && bytes > 0; ++i, used = 0) {
    const uint64_t here = std::min(bytes, kRegion - used);
    if (here > 0) spans.push_back({regions_[i].file, regions_[i].offset + used, here});
    bytes -= here;
  }
  return spans;
}

}  // namespace deltafin
