// TensorStore: the dense weights: in memory where they fit, else streamed in the order of the forward pass, from the
// shards or from packed dense weights.
//
// The unit of residency is a layer or the head (lm_head with its norms). Units that fit the budget are read once and
// stay; the others pass through a ring of buffers: while one unit is in use, the next streamed ones are being read.
// Every dense byte is needed for every token, so it is worth more memory than a cached expert: the plan fills dense
// first. The embedding table is never streamed whole: when it is not resident, the rows of a step's tokens are read one
// by one. Results do not depend on what is resident, nor on the source. Packed units are compared with their checksums
// when they are read for the first time, and looked through for numbers out of bounds every time (kCorrupt). Thread
// rule: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/dense_source.h"
#include "io/io_scheduler.h"
#include "tensor/tensor.h"

namespace deltafin {

class TensorStore;

// A unit's tensors, valid while the pin lives. Move-only. Matrices that are multiplied with may be kBf12.
class UnitPin {
 public:
  UnitPin() = default;
  UnitPin(UnitPin&& other) noexcept;
  UnitPin& operator=(UnitPin&& other) noexcept;
  ~UnitPin();

  // By the name's part after "language_model.model.layers.N." (layers) or by full name (head). Aborts on an unknown
  // name.
  TensorView Get(std::string_view name) const;

 private:
  friend class TensorStore;
  UnitPin(TensorStore* store, int unit, const std::byte* base) : store_(store), unit_(unit), base_(base) {}
  TensorStore* store_ = nullptr;
  int unit_ = 0;
  const std::byte* base_ = nullptr;
};

// Which units to keep. Unit l is layer l; unit num_layers is the head.
struct ResidencyPlan {
  std::vector<bool> resident;  // [num_layers + 1]
  bool embedding_resident = true;
  int ring_buffers = 0;  // 0 when everything is resident, else >= 2
};

class TensorStore {
 public:
  // Called while loading with bytes read so far and in all.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  // Buffer bytes of each unit (reads widened to alignment), and of the embedding table.
  static std::vector<uint64_t> UnitBytes(const DenseSource& source);
  static uint64_t EmbeddingBytes(const Checkpoint& checkpoint);

  // Reads the resident units; the first streamed ones are already on their way. kOutOfMemory, kCancelled, and errors of
  // reads; the first ends the rest. Never waits for a drive that hangs, nor does the destructor: what such a drive may
  // still write into stays until it lets go (checkpoint/read_group.h).
  static Result<std::unique_ptr<TensorStore>> Create(const DenseSource& source, IoScheduler& io,
                                                     const ResidencyPlan& plan, const Progress& progress,
                                                     CancelToken cancel);
  ~TensorStore();

  // Waits for the unit if it is streamed. Streamed units must be pinned in ring order (0, 1, ... head, 0, ...); any
  // other order works and costs a read. At most one streamed pin at a time per ring buffer. kCancelled within 50 ms of
  // a cancellation, also while a read hangs; any unit may be pinned afterwards.
  Result<UnitPin> PinUnit(int unit, CancelToken cancel = {});
  // Whether the unit stays in memory; if not, pinning it may wait for a drive.
  bool IsResident(int unit) const;
  // Whether the head comes after the last layer (at first: yes). A step without logits says no, so that the head is not
  // read ahead in vain; pinning it works all the same.
  void ExpectHead(bool expected);
  // out[i] = embedding row of ids[i], as BF16 [ids.size(), H]; valid until the next call.
  Result<TensorView> EmbeddingRows(std::span<const TokenId> ids, CancelToken cancel = {});

  // Payload of the units and rows that were read because a step needed them, the resident ones not counted. A unit that
  // was read ahead and not pinned does not count, so this is never more than the drives delivered.
  uint64_t streamed_bytes() const;
  // Payload of what was read to stay.
  uint64_t loaded_bytes() const;
  double wait_seconds() const;

 private:
  friend class UnitPin;
  struct State;
  explicit TensorStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deltafin
