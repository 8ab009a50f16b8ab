// TokenFilter: says which tokens may come next, for answers that must have a form (JSON of a schema, a tool call).
//
// What the form is, is the implementation's business; the engine knows tokens only. One filter serves one request.
// Thread rule: engine thread. Errors: kInternal, when no token may come next.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

class TokenFilter {
 public:
  virtual ~TokenFilter() = default;

  // Logits [vocab] of tokens that may not come next become NaN, which no sampler chooses. `remaining`: tokens that may
  // still come, this one included; a filter that can end its form within them must.
  virtual Status Mask(std::span<float> logits, int64_t remaining) = 0;
  // `token` was chosen.
  virtual void Accept(TokenId token) = 0;
};

}  // namespace deltafin
