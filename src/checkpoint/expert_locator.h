// ExpertLocator: where the bytes of a routed expert are, and what to do with them once they are in memory.
//
// Two kinds: the checkpoint's shards (one extent, anywhere in its first aligned block; no copies, and checksums only of
// what was fetched into a streamed folder) and an
// expert set (several page-aligned parts, checksums, perhaps second copies, scales perhaps compact). What an expert
// looks like in its slot is the locator's business; reading, trying again and checking scales is the store's
// (checkpoint/expert_store.h). Immutable; thread-safe. "Record" below: the bytes of an expert as they are stored.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set.h"
#include "io/read_request.h"
#include "spec/expert_record.h"

namespace deltafin {

class StreamFolder;

class ExpertLocator {
 public:
  virtual ~ExpertLocator() = default;

  // Payload of one expert as read, without padding; of the most common size where they differ.
  virtual uint64_t record_bytes() const = 0;
  // What a slot must offer, and be aligned to.
  virtual uint64_t slot_bytes() const = 0;
  virtual uint64_t slot_alignment() const = 0;

  // Whether every byte can be read from two drives.
  virtual bool HasCopy(ExpertKey key) const = 0;
  // The reads that bring the record into `slot`: at most IoScheduler::kMaxParts; returns how many.
  virtual size_t Parts(ExpertKey key, std::byte* slot, std::span<ReadPart> out) const = 0;
  // The same, but bytes in `bad` come from their copies only; 0 when none of them has one.
  virtual size_t PartsAvoiding(ExpertKey key, std::byte* slot, std::span<const RecordRange> bad,
                               std::span<ReadPart> out) const = 0;

  // Reads of `ranges` alone, into a slot that holds the record, not yet opened: from the first copies or, with
  // `copies`, from the second ones. 0 when there are none.
  virtual size_t PartsOfRanges(ExpertKey key, std::byte* slot, std::span<const RecordRange> ranges, bool copies,
                               std::span<ReadPart> out) const = 0;

  virtual bool has_checksums() const = 0;
  // Whether the record in `slot`, as read, has the checksum that it should have.
  virtual bool ChecksumIsRight(ExpertKey key, const std::byte* slot) const = 0;
  // For one that has not: the ranges that are wrong; the whole record when that cannot be told. May read from disk.
  virtual std::vector<RecordRange> WrongRanges(ExpertKey key, const std::byte* slot) const = 0;

  // Makes the record usable where it lies, once, after it arrived and was checked.
  virtual ExpertWeights Open(ExpertKey key, std::byte* slot) const = 0;
  // Byte of the record where the (whole) scales of a matrix begin.
  virtual uint64_t ScalesAt(ExpertKey key, ExpertMatrix matrix) const = 0;
  // "PATH, byte 17" or "PATH, bytes 0 to 4095", for messages.
  virtual std::string Where(ExpertKey key, RecordRange range) const = 0;
};

// Drives are those of the checkpoint, from 0. The checkpoint outlives the locator.
std::unique_ptr<const ExpertLocator> LocateInShards(const Checkpoint& checkpoint);
// The same for a streamed folder: records that were fetched have checksums (of the others none is asked). The folder
// outlives the locator too.
std::unique_ptr<const ExpertLocator> LocateInStream(const Checkpoint& checkpoint, const StreamFolder& folder);
// Drives are the set's, from `first_drive`. The set outlives the locator.
std::unique_ptr<const ExpertLocator> LocateInSet(const ExpertSet& set, int32_t first_drive);

}  // namespace deltafin
