// Session: one token sequence and the state that describes it.
//
// The tokens and the state always describe the same prefix: a step that fails or is cancelled changes neither. Made by
// Engine::NewSession. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/sequence_state.h"

namespace deltafin {

class Session {
 public:
  Session(SequenceState state) : state_(std::move(state)) { tokens_.reserve(static_cast<size_t>(state_.capacity())); }

  const std::vector<TokenId>& tokens() const { return tokens_; }  // read by the model so far
  int64_t length() const { return state_.length(); }
  int64_t capacity() const { return state_.capacity(); }
  void Reset() {
    state_.Reset();
    tokens_.clear();
  }
  const SequenceState& state() const { return state_; }

 private:
  friend class Engine;
  SequenceState state_;
  std::vector<TokenId> tokens_;
};

}  // namespace deltafin
