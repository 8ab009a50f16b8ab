// DraftModel: a drafter that is a model of its own (draft/dspark_drafter.h, draft/qwen_drafter.h), loaded beside the one
// it drafts for.
//
// Opened before the memory plan, which then knows what it needs; loaded after it. A DSpark drafter uses the model's
// embedding and output matrix, so the latter has to stay in memory. Thread rule: engine thread only. Errors: those of
// DsparkWeights and DraftTensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "checkpoint/tensor_store.h"
#include "draft/draft_kind.h"
#include "draft/dspark_drafter.h"
#include "draft/dspark_weights.h"
#include "draft/qwen_drafter.h"

namespace deltafin {

class DraftModel {
 public:
  // Longest text that is drafted with it, in ids of its own: acceptance falls on longer ones.
  static constexpr int64_t kLongestContext = 8192;

  // Of the kind that the folder holds.
  static Result<std::unique_ptr<DraftModel>> Open(const std::string& folder, const ModelSpec& target);

  DraftKind kind() const { return qwen_ ? DraftKind::kQwen : DraftKind::kDspark; }
  bool needs_output_matrix() const { return kind() == DraftKind::kDspark; }
  // With one drafter, in conversations of at most `context` tokens, over passes of at most `pass_rows`.
  uint64_t Bytes(int64_t context, int64_t pass_rows) const;
  WorkspaceLimits Workspace() const;

  // `dense` and `backend` outlive it.
  Status Load(TensorStore& dense, Backend& backend, int head_unit, CancelToken cancel);
  // Of kDspark. `options`: Options() of what Bytes() was asked for, or with other ids or rounding.
  Result<std::unique_ptr<DsparkDrafter>> NewDspark(const DsparkOptions& options);
  static DsparkOptions Options(int64_t context, int64_t pass_rows);
  // Of kQwen, for conversations of `context` tokens. kCorrupt: the tokenizer is of another model.
  Result<std::unique_ptr<QwenDrafter>> NewQwen(std::shared_ptr<const TokenBridge> bridge, int64_t context,
                                               int64_t most);

 private:
  class Target;
  struct Qwen {
    QwenConfig config;
    DraftTensors weights;
  };
  DraftModel() = default;
  QwenModelOptions QwenOptions(int64_t context) const;

  std::optional<DsparkWeights> dspark_;  // one of the two
  std::optional<Qwen> qwen_;
  Backend* backend_ = nullptr;
  std::shared_ptr<Target> target_;
};

// The larger of each limit: a workspace that does for both.
WorkspaceLimits Larger(const WorkspaceLimits& a, const WorkspaceLimits& b);

}  // namespace deltafin
