// release_config: config.json with the dimensions of the Kimi K3 release, made from k3-micro's.
#pragma once

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "support/test_data.h"

namespace deltafin::test {

inline Json ReleaseConfig() {
  Json config = *ReadJsonFile(RepoPath("tests/data/k3-micro/config.json"));
  Json& text = config["text_config"];
  const std::pair<const char*, int> sizes[] = {{"hidden_size", 7168},
                                               {"vocab_size", 163840},
                                               {"intermediate_size", 33792},
                                               {"num_attention_heads", 96},
                                               {"num_key_value_heads", 96},
                                               {"q_lora_rank", 1536},
                                               {"kv_lora_rank", 512},
                                               {"qk_nope_head_dim", 128},
                                               {"qk_rope_head_dim", 64},
                                               {"v_head_dim", 128},
                                               {"num_experts", 896},
                                               {"num_experts_per_token", 16},
                                               {"moe_intermediate_size", 3072},
                                               {"num_hidden_layers", 93},
                                               {"routed_expert_hidden_size", 3584}};
  for (const auto& [key, value] : sizes) text[key] = value;
  Json& linear = text["linear_attn_config"];
  linear["num_heads"] = 96;
  linear["head_dim"] = 128;
  linear["kda_layers"] = linear["full_attn_layers"] = Json::array();
  for (int l = 1; l <= 93; ++l) linear[l % 4 == 0 || l == 93 ? "full_attn_layers" : "kda_layers"].push_back(l);
  return config;
}

}  // namespace deltafin::test
