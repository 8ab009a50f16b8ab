#include "checkpoint/dense_model_id.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "checkpoint/integrity.h"
#include "checkpoint/read_group.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

constexpr uint64_t kSampleBytes = 4096;  // of a tensor

std::vector<std::string> SortedNames(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (int layer = -1; layer < static_cast<int>(checkpoint.spec().layers.size()); ++layer)
    for (const std::string& name : checkpoint.DenseNames(layer))
      if (name != kEmbedTokens) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<uint64_t> DenseModelId(const Checkpoint& checkpoint, IoScheduler& io, CancelToken cancel) {
  const std::vector<std::string> names = SortedNames(checkpoint);
  uint64_t alignment = 1;
  for (int i = 0; i < checkpoint.shard_count(); ++i) alignment = std::max(alignment, checkpoint.shard(i).alignment());
  const uint64_t slot = AlignUp(WidenedBytesAnywhere(kSampleBytes, alignment), alignment);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(slot * names.size(), false));
  const auto buffer = std::make_shared<const AlignedBuffer>(std::move(memory));
  ReadGroup reads(buffer);
  const IoTag tag = io.NewTag();
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorPlace& place = checkpoint.Dense(names[i]);
    reads.Start(
        io,
        {&checkpoint.shard(place.shard), place.offset, std::min(kSampleBytes, place.bytes), buffer->data() + i * slot},
        IoPriority::kDemand, tag, checkpoint.shard_drive(place.shard));
  }
  if (!reads.WaitUnless(cancel)) {
    io.Cancel(tag);
    return Fail(ErrorCode::kCancelled, "reading the beginnings of the dense tensors: stopped");
  }
  Status status = reads.Wait();
  if (!status) return FailWith(std::move(status), "reading the beginnings of the dense tensors");

  uint64_t hash = Hash64(std::string_view("deltafin dense"));
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorPlace& place = checkpoint.Dense(names[i]);
    hash = Hash64(Cat(names[i], " ", ToString(place.dtype), " ", ToString(place.shape)), hash);
    const uint64_t lead = place.offset % checkpoint.shard(place.shard).alignment();
    hash = Hash64(Bytes(buffer->data() + i * slot + lead, std::min(kSampleBytes, place.bytes)), hash);
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace deltafin
