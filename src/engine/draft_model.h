// DraftModel: a drafter that is a model of its own (draft/dspark_drafter.h), loaded beside the one it drafts for.
//
// Opened before the memory plan, which then knows what it needs; loaded after it. It uses the model's embedding and
// output matrix, so the latter has to stay in memory. Thread rule: engine thread only. Errors: those of DsparkWeights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/tensor_store.h"
#include "draft/dspark_drafter.h"
#include "draft/dspark_weights.h"

namespace deltafin {

class DraftModel {
 public:
  // Longest text that is drafted with it: acceptance falls on longer ones.
  static constexpr int64_t kLongestContext = 8192;

  static Result<std::unique_ptr<DraftModel>> Open(const std::string& folder, const ModelSpec& target);

  // With one drafter, in conversations of at most `context` tokens, over passes of at most `pass_rows`.
  uint64_t Bytes(int64_t context, int64_t pass_rows) const;
  WorkspaceLimits Workspace() const { return DsparkDrafter::Workspace(weights_.config()); }

  // `dense` and `backend` outlive it.
  Status Load(TensorStore& dense, Backend& backend, int head_unit, CancelToken cancel);
  // `options`: Options() of what Bytes() was asked for, or with other ids or rounding.
  Result<std::unique_ptr<DsparkDrafter>> NewDrafter(const DsparkOptions& options);
  static DsparkOptions Options(int64_t context, int64_t pass_rows);

 private:
  class Target;
  explicit DraftModel(DsparkWeights weights);

  DsparkWeights weights_;
  Backend* backend_ = nullptr;
  std::shared_ptr<Target> target_;
};

// The larger of each limit: a workspace that does for both.
WorkspaceLimits Larger(const WorkspaceLimits& a, const WorkspaceLimits& b);

}  // namespace deltafin
