// UnitLayout: how one unit of dense weights (a layer, the head, the embedding table) is read into one buffer.
//
// Tensors that are neighbours in a shard are read as one run, cut into pieces; nothing between runs is read, so an
// expert's bytes never are (beyond the alignment at a run's ends). A pure function of the checkpoint; immutable. Files
// may put a tensor at any byte, kernels want it aligned to its element: where the file's address does not fit, Settle()
// moves the tensor a few bytes up after reading. A unit of packed dense weights is one file, read whole and checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dense_source.h"
#include "checkpoint/read_group.h"
#include "tensor/tensor.h"

namespace deltafin {

struct UnitTensor {
  std::string_view name;  // without the layer's prefix; the checkpoint owns the text
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t read_at = 0;  // in the buffer, as read
  uint64_t at = 0;       // in the buffer, after Settle(): >= read_at
  uint64_t bytes = 0;
};

struct UnitRead {
  int32_t file = 0;  // shard, or unit of the packed weights
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;  // destination in the buffer, aligned
};

struct UnitLayout {
  std::vector<UnitTensor> tensors;  // in buffer order
  std::vector<UnitRead> reads;
  uint64_t buffer_bytes = 0;  // a multiple of the buffer's alignment
  uint64_t payload_bytes = 0;
  // Set for packed weights: the unit's entry in the manifest. The buffer begins with the file.
  const DenseUnit* packed = nullptr;
};

// The tensors of a layer or of the head, without the embedding table; from the source's set if it has one.
UnitLayout LayOutDenseUnit(const DenseSource& source, int32_t unit);
UnitLayout LayOutEmbedding(const Checkpoint& checkpoint);

// `names` in file order, as Checkpoint::DenseNames gives them; the first `prefix` characters of each are dropped. The
// tensor called `without` is left out.
UnitLayout LayOutUnit(const DenseSource& source, std::span<const std::string> names, size_t prefix,
                      std::string_view without = "");

// Starts all reads of the unit into `buffer`.
void StartReads(const DenseSource& source, const UnitLayout& layout, std::byte* buffer, IoScheduler& io,
                IoPriority priority, IoTag tag, ReadGroup& group);
// Once, after the reads have ended.
void Settle(const UnitLayout& layout, std::byte* buffer);
// After Settle(). Packed weights: kCorrupt unless every matrix is sound, which costs little; `whole` compares all bytes
// with their checksum too. Nothing is known to check weights from shards by.
Status CheckUnit(const DenseSource& source, const UnitLayout& layout, const std::byte* buffer, bool whole);

}  // namespace deltafin
