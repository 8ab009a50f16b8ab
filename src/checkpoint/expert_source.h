// ExpertSource: somewhere routed experts come from (the shards, later striped drives or another machine).
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>

#include "base/ids.h"
#include "base/result.h"
#include "io/read_request.h"
#include "spec/expert_record.h"

namespace deltafin {

class ExpertSource {
 public:
  // On success: where the views of the expert point, inside the slot that was given to Fetch. After kDeadline (a drive
  // hangs) the slot still belongs to the drive: `done` is called once more, with kCancelled, when it no longer does.
  using Done = std::function<void(Result<ExpertWeights>)>;

  virtual ~ExpertSource() = default;

  // Bytes of payload of one expert (17,547,264 at K3's sizes), and what a slot must offer to hold any of them.
  virtual uint64_t record_bytes() const = 0;
  virtual uint64_t slot_bytes() const = 0;
  // Slots must be aligned to this.
  virtual uint64_t slot_alignment() const = 0;
  // Whether a drive that hangs or fails leaves another way to this expert.
  virtual bool HasCopy(ExpertKey) const { return false; }

  // Reads one expert into `slot` (slot_bytes(), untouched by others until done). `done` is called exactly once
  // (but see Done), possibly on an I/O thread. Every scale byte has been looked at: a 255 is kCorrupt naming layer,
  // expert, matrix and row.
  virtual void Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) = 0;
  // A tag that no other user of the source's scheduler has.
  virtual IoTag NewTag() = 0;
  // Fetches of `tag` end with kCancelled as soon as nothing writes into their slots; those that have begun may still
  // succeed.
  virtual void Cancel(IoTag tag) = 0;
  // Fetches of `tag` that wait at a lower priority become as urgent as `priority`.
  virtual void Raise(IoTag tag, IoPriority priority) = 0;
};

}  // namespace deltafin
