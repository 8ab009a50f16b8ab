// Session: one token sequence and the state that describes it. SessionCheckpoint: a prefix of one that was kept.
//
// Tokens, KDA state and latents always describe the same prefix: a step that fails or is cancelled changes none of
// them, and what goes back to a checkpoint goes back whole. A fork or a checkpoint shares pages of latents with the
// session it comes from and copies the KDA state (465 MB at K3's sizes). Made by Engine::NewSession. Thread rule:
// engine thread only. Errors: kOutOfMemory, kInvalidArgument (a checkpoint that does not fit).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "draft/session_observer.h"
#include "model/sequence_state.h"

namespace deltafin {

// Never changes; any number of sessions may go on from it.
struct SessionCheckpoint {
  std::vector<TokenId> tokens;
  StateCheckpoint state;
  std::vector<float> logits;  // after the last token; empty: not kept

  int64_t position() const { return state.position(); }
  bool IsPrefixOf(std::span<const TokenId> other) const;
};

class Session {
 public:
  Session(SequenceState state) : state_(std::move(state)) { tokens_.reserve(static_cast<size_t>(state_.capacity())); }

  const std::vector<TokenId>& tokens() const { return tokens_; }  // read by the model so far
  int64_t length() const { return state_.length(); }
  int64_t capacity() const { return state_.capacity(); }
  const SequenceState& state() const { return state_; }

  // Not owned, outlives the session or is taken away with null. A fork has none.
  void SetObserver(SessionObserver* observer) { observer_ = observer; }

  void Reset();
  Result<Session> Fork() const;
  // `logits`: after the last token, when they are at hand and should be kept.
  Result<std::shared_ptr<const SessionCheckpoint>> Checkpoint(std::span<const float> logits = {}) const;
  // Becomes the prefix that was kept, whatever it held before.
  Status Restore(const SessionCheckpoint& kept);
  // The same for a prefix of this session's own tokens; others are refused.
  Status TruncateTo(const SessionCheckpoint& kept);

 private:
  friend class Engine;
  friend class SnapshotFiles;
  SequenceState state_;
  std::vector<TokenId> tokens_;
  SessionObserver* observer_ = nullptr;
};

}  // namespace deltafin
