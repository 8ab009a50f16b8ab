// QwenConfig: the config.json of a Qwen3 model that drafts, and the tensors that follow from it.
//
// Qwen3 without what its small models do not have: biases, scaled rotation, sliding windows, an output matrix of its
// own. Fields that would ask for it are refused by name. Field names: the file's. Specification of drafting, part C.1.
// Pure functions of bytes that may be hostile. Errors: kCorrupt (not such a config), kUnsupported (another model).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "draft/draft_tensors.h"

namespace deltafin {

struct QwenConfig {
  int64_t hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // query head j reads key head j / (heads / kv_heads)
  int64_t vocab = 0, positions = 0;
  float norm_eps = 0;
  double rope_theta = 0;
  std::vector<TokenId> end_tokens;

  int64_t group() const { return heads / kv_heads; }

  // `what` names the document in errors.
  static Result<QwenConfig> Parse(std::string_view json, const std::string& what);
};

// Sorted by name. A file may have a copy of the embedding as output matrix, which is not read.
std::vector<DraftTensor> QwenTensors(const QwenConfig& config);
inline constexpr std::string_view kQwenEmbedding = "model.embed_tokens.weight";

}  // namespace deltafin
