// SessionObserver: sees what passes over a session compute, for drafters that look at the model's own rows.
//
// Called on the engine thread, from inside a pass. Allocates nothing and keeps no view longer than the call.
#pragma once

#include <cstdint>
#include <span>

#include "base/cancel.h"
#include "base/ids.h"
#include "tensor/tensor.h"

namespace deltafin {

class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // During a pass, in ascending order: the running sum as it leaves a layer, [rows of the pass, hidden].
  virtual void OnLayer(int32_t layer, const ConstRows& sum) = 0;
  // The first `rows` rows of that pass are part of the session now, as the last of its tokens. Rows beyond them were
  // not accepted. The session may have gone back to a prefix, or to nothing, since the pass before. With `cancel` set
  // it may leave the rest out.
  virtual void OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) = 0;
};

}  // namespace deltafin
