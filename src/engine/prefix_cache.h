// PrefixCache: checkpoints of sessions, so that a prompt that begins like an earlier one is read only from there on.
//
// A checkpoint is used whole or not at all: tokens, KDA state of all layers, latents of all layers. Everything that it
// keeps counts against one budget in bytes, pages of latents that several checkpoints share once. When it is full, the
// conversation that was used least recently loses its least recently used checkpoint, and so on; a checkpoint that does
// not fit even alone is not kept. Conversations are numbers of the caller's. Nothing of this changes a result.
// With files (engine/prefix_files.h) it goes on after a restart: what they hold is taken where it is longer, and
// SaveNext() writes to them what memory holds. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/prefix_files.h"
#include "engine/session.h"

namespace deltafin {

struct PrefixCacheCounters {
  uint64_t tokens_wanted = 0;  // of the prompts that were read through it
  uint64_t tokens_read = 0;    // of them, by the model
  uint64_t evicted = 0;        // checkpoints
};

class PrefixCache {
 public:
  // Positions between two checkpoints while a long prompt is read, on a grid from 0: what is shared is read again for
  // fewer tokens than this.
  static constexpr int64_t kCheckpointInterval = 4096;
  // The same for prompts that are read in chunks of so many: whole chunks, so that no pass is made for a checkpoint
  // alone.
  static constexpr int64_t IntervalFor(int64_t chunk) {
    return (std::max(kCheckpointInterval, chunk) + chunk - 1) / chunk * chunk;
  }

  // Without a budget nothing is kept, and no prompt is stopped for it.
  explicit PrefixCache(uint64_t budget, int64_t interval = kCheckpointInterval)
      : budget_(budget), interval_(budget == 0 ? INT64_MAX : interval) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest kept prefix of `tokens`; of all of them only if its logits were kept too. Null when there is none.
  // It counts as used by `conversation`.
  std::shared_ptr<const SessionCheckpoint> Match(std::span<const TokenId> tokens, uint64_t conversation);
  // Keeps the session as it is, unless its tokens are kept already.
  Status Keep(const Session& session, uint64_t conversation, std::span<const float> logits);

  // The session becomes the longest prefix of `tokens` that it, memory or the files hold. True: all of them, and
  // `logits` are those after the last.
  Result<bool> Resume(std::span<const TokenId> tokens, uint64_t conversation, Session& session,
                      std::span<float> logits);
  // They outlive the cache.
  void UseFiles(PrefixFiles* files) {
    files_ = files;
    if (files != nullptr) now_ = std::max(now_, files->latest());
  }
  // Writes the checkpoint used last of those that the files do not have. False: they have all. At K3's sizes 0.47 GB
  // and 55.3 KB a token: for when nobody waits.
  Result<bool> SaveNext();

  uint64_t budget() const { return budget_; }
  int64_t interval() const { return interval_; }
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }
  PrefixCacheCounters& counters() { return counters_; }

 private:
  struct Entry {
    std::shared_ptr<const SessionCheckpoint> checkpoint;
    uint64_t conversation = 0;
    uint64_t used = 0;
    bool saved = false;  // to the files, or never to be
  };
  void Touch(Entry& entry, uint64_t conversation);
  void Count(const SessionCheckpoint& checkpoint);
  void Evict();

  uint64_t budget_;
  int64_t interval_;
  PrefixFiles* files_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t now_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<uint64_t, uint64_t> conversations_;  // when each was used last
  std::unordered_map<const std::byte*, int> pages_;       // checkpoints that hold each page
  PrefixCacheCounters counters_;
};

}  // namespace deltafin
