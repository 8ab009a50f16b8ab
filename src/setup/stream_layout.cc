#include "setup/stream_layout.h"

#include <algorithm>
#include <map>

#include "checkpoint/tensor_directory.h"

namespace deltafin {
namespace {

// [begin, end) in ranges of at most kDenseRangeBytes.
void AddDense(uint64_t begin, uint64_t end, int32_t file, std::vector<FileRange>& out) {
  while (begin < end) {
    const uint64_t bytes = std::min(end - begin, kDenseRangeBytes);
    out.push_back({file, begin, bytes});
    begin += bytes;
  }
}

}  // namespace

Result<StreamLayout> LayOut(const ModelSpec& spec, const SafetensorsHeader& header, int32_t file) {
  const TensorDirectory directory(spec);
  struct Extent {
    uint64_t begin = UINT64_MAX, end = 0, bytes = 0;
  };
  std::map<int64_t, Extent> experts;  // by position
  for (const TensorEntry& tensor : header.tensors()) {
    const TensorDirectory::Lookup found = directory.Find(tensor.name);
    if (found.kind == TensorDirectory::Lookup::Kind::kUnknown)
      return Fail(ErrorCode::kCorrupt, "tensor '", tensor.name,
                  "': expected only tensors that Kimi K3 with this config.json has, got an unknown one");
    if (found.kind != TensorDirectory::Lookup::Kind::kText || found.slot < directory.dense_count()) continue;
    Extent& extent = experts[(found.slot - directory.dense_count()) / kExpertParts];
    const uint64_t begin = header.data_start() + tensor.begin;
    extent.begin = std::min(extent.begin, begin);
    extent.end = std::max(extent.end, begin + tensor.bytes);
    extent.bytes += tensor.bytes;
  }
  StreamLayout layout;
  const auto record = static_cast<uint64_t>(ExpertGeometry(spec).record_bytes());
  for (const auto& [position, extent] : experts) {
    // One that is not whole, or in pieces, is left to the checkpoint to refuse: here it counts as dense.
    if (extent.bytes == record && extent.end - extent.begin == record)
      layout.experts.push_back({file, extent.begin, record});
  }
  std::sort(layout.experts.begin(), layout.experts.end());
  uint64_t next = header.data_start();
  for (const FileRange& range : layout.experts) {
    if (range.offset < next)
      return Fail(ErrorCode::kCorrupt, "expected experts that do not overlap, got one at byte ", range.offset,
                  " before the end of another at ", next);
    AddDense(next, range.offset, file, layout.dense);
    next = range.offset + range.bytes;
  }
  AddDense(next, header.file_bytes(), file, layout.dense);
  return layout;
}

}  // namespace deltafin
