// DsparkConfig: the config.json of a DSpark drafter, checked against the model that it is to draft for, and the tensors
// that follow from it.
//
// The released layout only (Inferact/Kimi-K3-DSpark): its siblings look alike and compute something else, so every
// field that tells them apart is demanded. Field names: the file's. Specification of drafting, parts A.2 and A.3. Pure
// functions of bytes that may be hostile. Errors: kCorrupt (not such a config), kUnsupported (a sibling, or of another
// model).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "draft/draft_tensors.h"
#include "draft/yarn.h"
#include "spec/model_spec.h"

namespace deltafin {

struct DsparkConfig {
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0;
  int64_t q_lora = 0, kv_lora = 0, nope = 0, rope = 0, v_dim = 0;
  int64_t vocab = 0, markov_rank = 0;
  float norm_eps = 0;
  YarnParameters yarn;
  std::vector<int32_t> taps;  // layers of the model whose output is looked at, ascending
  TokenId mask_token = 0;

  int64_t tap_width() const { return static_cast<int64_t>(taps.size()) * hidden; }
  int64_t latent_width() const { return kv_lora + rope; }

  // `what` names the document in errors.
  static Result<DsparkConfig> Parse(std::string_view json, const std::string& what, const ModelSpec& target);
};

// Sorted by name. The file's copy of the model's embedding is among them, and not read.
std::vector<DraftTensor> DsparkTensors(const DsparkConfig& config);
inline constexpr std::string_view kDsparkEmbedding = "embed_tokens.weight";

}  // namespace deltafin
