#include "engine/session.h"

#include <algorithm>

namespace deltafin {

bool SessionCheckpoint::IsPrefixOf(std::span<const TokenId> other) const {
  return tokens.size() <= other.size() && std::equal(tokens.begin(), tokens.end(), other.begin());
}

void Session::Reset() {
  state_.Reset();
  tokens_.clear();
}

Result<Session> Session::Fork() const {
  DFIN_TRY(SequenceState state, state_.Fork());
  Session fork(std::move(state));
  fork.tokens_.assign(tokens_.begin(), tokens_.end());
  return fork;
}

Result<std::shared_ptr<const SessionCheckpoint>> Session::Checkpoint(std::span<const float> logits) const {
  auto kept = std::make_shared<SessionCheckpoint>();
  DFIN_TRY(kept->state, state_.Checkpoint());
  kept->tokens = tokens_;
  kept->logits.assign(logits.begin(), logits.end());
  return std::shared_ptr<const SessionCheckpoint>(std::move(kept));
}

Status Session::Restore(const SessionCheckpoint& kept) {
  if (kept.position() > capacity())
    return Fail(ErrorCode::kInvalidArgument, "checkpoint of ", kept.position(), " tokens: expected at most ",
                capacity(), ", the context of this session: raise --context");
  state_.Restore(kept.state);
  tokens_.assign(kept.tokens.begin(), kept.tokens.end());
  return {};
}

Status Session::TruncateTo(const SessionCheckpoint& kept) {
  if (!kept.IsPrefixOf(tokens_))
    return Fail(ErrorCode::kInvalidArgument, "checkpoint of ", kept.position(),
                " tokens: expected a prefix of this session's tokens, got other ones: use Restore");
  return Restore(kept);
}

}  // namespace deltafin
