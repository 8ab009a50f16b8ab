#include "engine/draft_model.h"

#include <algorithm>

#include "base/float_types.h"
#include "model/weights.h"

namespace deltafin {

class DraftModel::Target final : public DsparkTarget {
 public:
  Target(TensorStore& dense, Backend& backend, int head_unit)
      : dense_(dense), backend_(backend), head_unit_(head_unit) {}

  Status Embed(std::span<const TokenId> ids, const Rows& out) override {
    DFIN_TRY(const TensorView rows, dense_.EmbeddingRows(ids));
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t i = 0; i < out.width; ++i) out.row(r)[i] = Bf16ToFloat(rows.bf16()[r * out.width + i]);
    return {};
  }

  Status Head(const ConstRows& h, const Rows& logits) override {
    DFIN_TRY(const UnitPin pin, dense_.PinUnit(head_unit_));
    backend_.Linear({.weight = ViewHead(pin).lm_head, .x = h, .out = logits});
    return {};
  }

 private:
  TensorStore& dense_;
  Backend& backend_;
  const int head_unit_;
};

Result<std::unique_ptr<DraftModel>> DraftModel::Open(const std::string& folder, const ModelSpec& target) {
  DFIN_TRY(const DraftKind kind, DraftKindOf(folder));
  std::unique_ptr<DraftModel> model(new DraftModel());
  if (kind == DraftKind::kDspark) {
    DFIN_TRY(model->dspark_, DsparkWeights::Open(folder, target));
    return model;
  }
  const std::string config = folder + "/config.json";
  Qwen qwen;
  DFIN_TRY(const std::string json, ReadDraftConfig(config));
  DFIN_TRY(qwen.config, QwenConfig::Parse(json, config));
  DFIN_TRY(std::vector<std::string> files, FindDraftFiles(folder));
  DFIN_TRY(qwen.weights, DraftTensors::Open(std::move(files), QwenTensors(qwen.config), "Qwen3"));
  model->qwen_ = std::move(qwen);
  return model;
}

DsparkOptions DraftModel::Options(int64_t context, int64_t pass_rows) {
  return {.context = std::min(context, kLongestContext), .pass_rows = pass_rows};
}

// Its tokens may be shorter than those of the model.
QwenModelOptions DraftModel::QwenOptions(int64_t context) const {
  const int64_t longest = std::min(context + context / 2, kLongestContext) + QwenDrafter::kMostOwn;
  return {.capacity = std::min(longest, qwen_->config.positions)};
}

uint64_t DraftModel::Bytes(int64_t context, int64_t pass_rows) const {
  if (qwen_) return qwen_->weights.bytes() + QwenModel::Bytes(qwen_->config, QwenOptions(context));
  return dspark_->bytes() + DsparkDrafter::Bytes(dspark_->config(), Options(context, pass_rows));
}

WorkspaceLimits DraftModel::Workspace() const {
  return qwen_ ? QwenModel::Workspace(qwen_->config) : DsparkDrafter::Workspace(dspark_->config());
}

Status DraftModel::Load(TensorStore& dense, Backend& backend, int head_unit, CancelToken cancel) {
  backend_ = &backend;
  if (qwen_) return qwen_->weights.Load(cancel);
  DFIN_CHECK(dense.IsResident(head_unit), "the plan keeps the output matrix for a draft model");
  DFIN_TRY_VOID(dspark_->Load(cancel));
  target_ = std::make_shared<Target>(dense, backend, head_unit);
  return {};
}

Result<std::unique_ptr<DsparkDrafter>> DraftModel::NewDspark(const DsparkOptions& options) {
  DFIN_CHECK(target_ != nullptr, "loaded before");
  return DsparkDrafter::Create(*dspark_, *backend_, *target_, options);
}

Result<std::unique_ptr<QwenDrafter>> DraftModel::NewQwen(std::shared_ptr<const TokenBridge> bridge, int64_t context,
                                                         int64_t most) {
  DFIN_CHECK(qwen_ && backend_ != nullptr, "loaded before");
  DFIN_TRY_VOID(QwenDrafter::CheckVocabulary(qwen_->config, bridge->drafter()));
  DFIN_TRY(auto model, QwenModel::Create(qwen_->config, qwen_->weights, *backend_, QwenOptions(context)));
  return std::make_unique<QwenDrafter>(std::move(model), std::move(bridge), most);
}

WorkspaceLimits Larger(const WorkspaceLimits& a, const WorkspaceLimits& b) {
  return {.max_rows = std::max(a.max_rows, b.max_rows),
          .max_inner = std::max(a.max_inner, b.max_inner),
          .max_expert_inner = std::max(a.max_expert_inner, b.max_expert_inner),
          .max_experts = std::max(a.max_experts, b.max_experts),
          .mla_heads = std::max(a.mla_heads, b.mla_heads),
          .mla_latent_width = std::max(a.mla_latent_width, b.mla_latent_width),
          .kda_head_dim = std::max(a.kda_head_dim, b.kda_head_dim)};
}

}  // namespace deltafin
