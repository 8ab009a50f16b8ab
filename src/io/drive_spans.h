// UnreadSpans: hands out places of a drive's files to read, none of them twice.
//
// Files are cut into regions of 16 MiB that are visited in a random order; inside a region blocks follow each other, as
// the chunks of an expert's piece do. What was handed out is never handed out again, so that no cache above the drive
// can answer. Knows sizes only, makes no calls. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace deltafin {

class UnreadSpans {
 public:
  static constexpr uint64_t kRegion = uint64_t{16} << 20;

  struct Span {
    size_t file = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // `file_bytes` are the sizes of the files. What is left of a file after its last whole region is not used.
  explicit UnreadSpans(const std::vector<uint64_t>& file_bytes, uint64_t seed = 1);

  uint64_t total_bytes() const { return regions_.size() * kRegion; }
  uint64_t bytes_left() const { return total_bytes() - region_ * kRegion - used_; }
  // `block` divides kRegion. Nothing when all was handed out.
  std::optional<Span> Next(uint64_t block);
  // What Next() would hand out for the next `bytes`, region by region; hands out nothing.
  std::vector<Span> Ahead(uint64_t bytes) const;

 private:
  struct Region {
    size_t file;
    uint64_t offset;
  };
  std::vector<Region> regions_;
  size_t region_ = 0;
  uint64_t used_ = 0;  // of regions_[region_]
};

}  // namespace deltafin
