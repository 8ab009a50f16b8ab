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

DraftModel::DraftModel(DsparkWeights weights) : weights_(std::move(weights)) {}

Result<std::unique_ptr<DraftModel>> DraftModel::Open(const std::string& folder, const ModelSpec& target) {
  DFIN_TRY(DsparkWeights weights, DsparkWeights::Open(folder, target));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(weights)));
}

DsparkOptions DraftModel::Options(int64_t context, int64_t pass_rows) {
  return {.context = std::min(context, kLongestContext), .pass_rows = pass_rows};
}

uint64_t DraftModel::Bytes(int64_t context, int64_t pass_rows) const {
  return weights_.bytes() + DsparkDrafter::Bytes(weights_.config(), Options(context, pass_rows));
}

Status DraftModel::Load(TensorStore& dense, Backend& backend, int head_unit, CancelToken cancel) {
  DFIN_CHECK(dense.IsResident(head_unit), "the plan keeps the output matrix for a draft model");
  DFIN_TRY_VOID(weights_.Load(cancel));
  backend_ = &backend;
  target_ = std::make_shared<Target>(dense, backend, head_unit);
  return {};
}

Result<std::unique_ptr<DsparkDrafter>> DraftModel::NewDrafter(const DsparkOptions& options) {
  DFIN_CHECK(target_ != nullptr, "loaded before");
  return DsparkDrafter::Create(weights_, *backend_, *target_, options);
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
