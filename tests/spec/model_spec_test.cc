#include "spec/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "support/test_data.h"

namespace deltafin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json MicroConfig() {
  Result<Json> config = ReadJsonFile(test::RepoPath("tests/data/k3-micro/config.json"));
  EXPECT_TRUE(config) << config.error().message();
  return *config;
}

// The error that `edit` of k3-micro's config leads to.
std::string Refusal(const std::function<void(Json&)>& edit) {
  Json config = MicroConfig();
  edit(config);
  const Result<ModelSpec> spec = ModelSpec::FromConfig(config, "config.json");
  return spec ? "accepted" : spec.error().message();
}
std::string TextRefusal(const char* key, const Json& value) {
  return Refusal([&](Json& config) { config["text_config"][key] = value; });
}

// Values from the file itself, read by eye.
TEST(ModelSpec, ReadsTheDimensionsOfK3Micro) {
  const Result<ModelSpec> spec = ModelSpec::FromConfig(MicroConfig(), "config.json");
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->hidden_size, 96);
  EXPECT_EQ(spec->vocab_size, 512);
  EXPECT_EQ(spec->intermediate_size, 160);
  EXPECT_EQ(spec->attn_res_block_size, 2);
  EXPECT_EQ(spec->max_position_embeddings, 4096);
  EXPECT_FLOAT_EQ(spec->rms_norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(spec->situ_beta, 4);
  EXPECT_FLOAT_EQ(spec->situ_linear_beta, 25);
  EXPECT_EQ(spec->kda_heads, 3);
  EXPECT_EQ(spec->kda_head_dim, 32);
  EXPECT_EQ(spec->conv_kernel, 4);
  EXPECT_FLOAT_EQ(spec->gate_lower_bound, -5);
  EXPECT_EQ(spec->mla_heads, 3);
  EXPECT_EQ(spec->q_lora_rank, 128);
  EXPECT_EQ(spec->kv_lora_rank, 64);
  EXPECT_EQ(spec->latent_width(), 96);
  EXPECT_EQ(spec->q_width(), 3 * 96);
  EXPECT_EQ(spec->num_experts, 40);
  EXPECT_EQ(spec->num_experts_per_token, 4);
  EXPECT_EQ(spec->shared_width(), 64);
  EXPECT_EQ(spec->routed_expert_hidden_size, 64);
  EXPECT_EQ(spec->moe_intermediate_size, 32);
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(258));
}

TEST(ModelSpec, LayerListsOfTheConfigCountFromOne) {
  const Result<ModelSpec> spec = ModelSpec::FromConfig(MicroConfig(), "config.json");
  ASSERT_TRUE(spec) << spec.error().message();
  ASSERT_EQ(spec->layers.size(), 6u);
  EXPECT_EQ(spec->layers[1].attention, AttentionKind::kKda);
  EXPECT_EQ(spec->layers[2].attention, AttentionKind::kMla);
  EXPECT_EQ(spec->layers[3].attention, AttentionKind::kKda);
  EXPECT_EQ(spec->layers[5].attention, AttentionKind::kMla);
  EXPECT_EQ(spec->layers[3].kda_index, 2);
  EXPECT_EQ(spec->layers[3].mla_index, -1);
  EXPECT_EQ(spec->layers[5].mla_index, 1);
  EXPECT_EQ(spec->layers[0].feed_forward, FeedForwardKind::kDense);
  EXPECT_EQ(spec->layers[1].feed_forward, FeedForwardKind::kMoe);
  EXPECT_TRUE(spec->layers[4].opens_block);
  EXPECT_FALSE(spec->layers[5].opens_block);
  EXPECT_EQ(spec->num_kda_layers, 4);
  EXPECT_EQ(spec->num_mla_layers, 2);
  EXPECT_EQ(spec->num_moe_layers, 5);
}

TEST(ModelSpec, AcceptsAListOfEndIdsAndFallsBackToTheTextConfig) {
  Json config = MicroConfig();
  config["eos_token_id"] = Json::array({258, 300});
  EXPECT_THAT(ModelSpec::FromConfig(config, "c")->eos_token_ids, ElementsAre(258, 300));
  config.erase("eos_token_id");
  config["text_config"]["eos_token_id"] = 7;
  EXPECT_THAT(ModelSpec::FromConfig(config, "c")->eos_token_ids, ElementsAre(7));
}

struct RefusalCase {
  const char* name;
  std::function<void(Json&)> edit;
  const char* message;
};

class ModelSpecRefuses : public ::testing::TestWithParam<RefusalCase> {};

TEST_P(ModelSpecRefuses, NamingKeyExpectedAndGot) {
  EXPECT_THAT(Refusal(GetParam().edit), HasSubstr(GetParam().message));
}

Json& Text(Json& c) { return c["text_config"]; }
Json& Linear(Json& c) { return Text(c)["linear_attn_config"]; }
Json& Quantization(Json& c) { return Text(c)["quantization_config"]; }
Json& Weights(Json& c) { return Quantization(c)["config_groups"]["group_0"]["weights"]; }

INSTANTIATE_TEST_SUITE_P(
    Config, ModelSpecRefuses,
    ::testing::Values(
        RefusalCase{"OtherModelType", [](Json& c) { c["model_type"] = "llama"; },
                    "config.json: model_type: expected \"kimi_k3\", got \"llama\""},
        RefusalCase{"OtherArchitecture", [](Json& c) { c["architectures"] = Json::array({"LlamaForCausalLM"}); },
                    "architectures: expected [\"KimiK3ForConditionalGeneration\"], got [\"LlamaForCausalLM\"]"},
        RefusalCase{"OtherTextModel", [](Json& c) { Text(c)["model_type"] = "deepseek_v3"; },
                    "config.json: text_config: model_type: expected \"kimi_linear\", got \"deepseek_v3\""},
        RefusalCase{"NoTextConfig", [](Json& c) { c.erase("text_config"); },
                    "text_config: expected an object, got nothing"},
        RefusalCase{"OtherActivation", [](Json& c) { Text(c)["hidden_act"] = "silu"; },
                    "hidden_act: expected \"situ\", got \"silu\""},
        RefusalCase{"OtherRouter", [](Json& c) { Text(c)["moe_router_activation_func"] = "softmax"; },
                    "moe_router_activation_func: expected \"sigmoid\", got \"softmax\""},
        RefusalCase{"OtherTopK", [](Json& c) { Text(c)["topk_method"] = "greedy"; },
                    "topk_method: expected \"noaux_tc\""},
        RefusalCase{"LowRankGate", [](Json& c) { Linear(c)["use_full_rank_gate"] = false; },
                    "linear_attn_config: use_full_rank_gate: expected true, got false"},
        RefusalCase{"Rotation", [](Json& c) { Text(c)["mla_use_nope"] = false; },
                    "mla_use_nope: expected true, got false"},
        RefusalCase{"NoOutputGate", [](Json& c) { Text(c)["mla_use_output_gate"] = false; }, "mla_use_output_gate"},
        RefusalCase{"NoLatentNorm", [](Json& c) { Text(c)["latent_moe_use_norm"] = false; }, "latent_moe_use_norm"},
        RefusalCase{"NotRenormalised", [](Json& c) { Text(c)["moe_renormalize"] = false; }, "moe_renormalize"},
        RefusalCase{"ExpertGroups", [](Json& c) { Text(c)["num_expert_group"] = 8; },
                    "num_expert_group: expected 1, got 8"},
        RefusalCase{"TopKGroups", [](Json& c) { Text(c)["topk_group"] = 4; }, "topk_group: expected 1, got 4"},
        RefusalCase{"TiedEmbeddings", [](Json& c) { c["tie_word_embeddings"] = true; },
                    "tie_word_embeddings: expected false, got true"},
        RefusalCase{"PredictionLayers", [](Json& c) { Text(c)["num_nextn_predict_layers"] = 1; },
                    "num_nextn_predict_layers: expected 0, got 1"},
        RefusalCase{"KeyValueHeads", [](Json& c) { Text(c)["num_key_value_heads"] = 1; },
                    "num_key_value_heads: expected 3, got 1"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Quantization, ModelSpecRefuses,
    ::testing::Values(
        RefusalCase{"None", [](Json& c) { Text(c).erase("quantization_config"); },
                    "quantization_config: expected an object, got nothing"},
        RefusalCase{"OtherMethod", [](Json& c) { Quantization(c)["quant_method"] = "fp8"; },
                    "quant_method: expected \"compressed-tensors\", got \"fp8\""},
        RefusalCase{"OtherFormat", [](Json& c) { Quantization(c)["format"] = "nvfp4-pack-quantized"; },
                    "format: expected \"mxfp4-pack-quantized\", got \"nvfp4-pack-quantized\""},
        RefusalCase{"EightBits", [](Json& c) { Weights(c)["num_bits"] = 8; }, "weights: num_bits: expected 4, got 8"},
        RefusalCase{"GroupsOf16", [](Json& c) { Weights(c)["group_size"] = 16; }, "group_size: expected 32, got 16"},
        RefusalCase{"OtherScales", [](Json& c) { Weights(c)["scale_dtype"] = "torch.float8_e4m3fn"; },
                    "scale_dtype: expected \"torch.uint8\", got \"torch.float8_e4m3fn\""},
        RefusalCase{"TwoGroups", [](Json& c) { Quantization(c)["config_groups"]["group_1"] = Json::object(); },
                    "config_groups: expected one group"},
        RefusalCase{"Activations",
                    [](Json& c) { Quantization(c)["config_groups"]["group_0"]["input_activations"] = Json::object(); },
                    "input_activations: expected null"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Sizes, ModelSpecRefuses,
    ::testing::Values(
        RefusalCase{"Missing", [](Json& c) { Text(c).erase("hidden_size"); },
                    "config.json: text_config: hidden_size: expected an integer from 1 to 1048576, got nothing"},
        RefusalCase{"Zero", [](Json& c) { Text(c)["num_attention_heads"] = 0; },
                    "num_attention_heads: expected an integer from 1 to 4096, got 0"},
        RefusalCase{"Negative", [](Json& c) { Text(c)["kv_lora_rank"] = -1; }, "kv_lora_rank: expected an integer"},
        RefusalCase{"Huge", [](Json& c) { Text(c)["vocab_size"] = 18446744073709551615ull; },
                    "vocab_size: expected an integer from 1 to 16777216, got 18446744073709551615"},
        RefusalCase{"Text", [](Json& c) { Text(c)["hidden_size"] = "96"; }, "hidden_size: expected an integer"},
        RefusalCase{"Fraction", [](Json& c) { Text(c)["hidden_size"] = 96.5; }, "got 96.5"},
        RefusalCase{"Null", [](Json& c) { Text(c)["q_lora_rank"] = nullptr; }, "q_lora_rank: expected an integer"},
        RefusalCase{"ZeroEps", [](Json& c) { Text(c)["rms_norm_eps"] = 0; }, "rms_norm_eps: expected a number above 0"},
        RefusalCase{"PositiveGateBound", [](Json& c) { Linear(c)["gate_lower_bound"] = 5; }, "gate_lower_bound"},
        RefusalCase{"OddExpertColumns", [](Json& c) { Text(c)["moe_intermediate_size"] = 48; },
                    "moe_intermediate_size: expected a multiple of 32, got 48"},
        RefusalCase{"OddLatent", [](Json& c) { Text(c)["routed_expert_hidden_size"] = 100; },
                    "routed_expert_hidden_size: expected a multiple of 32, got 100"},
        RefusalCase{"MoreChosenThanExperts", [](Json& c) { Text(c)["num_experts_per_token"] = 41; },
                    "num_experts_per_token: expected at most num_experts (40), got 41"},
        RefusalCase{"HugeExpert",
                    [](Json& c) { Text(c)["moe_intermediate_size"] = Text(c)["routed_expert_hidden_size"] = 1 << 18; },
                    "moe_intermediate_size: expected an expert of at most"},
        RefusalCase{"EndIdOutside", [](Json& c) { c["eos_token_id"] = 512; },
                    "eos_token_id: expected an id below vocab_size (512)"},
        RefusalCase{"NoEndId",
                    [](Json& c) {
                      c.erase("eos_token_id");
                      Text(c).erase("eos_token_id");
                    },
                    "eos_token_id"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layers, ModelSpecRefuses,
    ::testing::Values(
        RefusalCase{"InNoList",
                    [](Json& c) {
                      Linear(c)["kda_layers"] = Json::array({1, 2, 4});
                    },
                    "expected every layer from 1 to 6 in one of them, got neither with layer 5"},
        RefusalCase{"InBothLists",
                    [](Json& c) {
                      Linear(c)["kda_layers"] = Json::array({1, 2, 3, 4, 5});
                    },
                    "full_attn_layers: expected every layer in exactly one of kda_layers and full_attn_layers, got 3"},
        RefusalCase{"Twice",
                    [](Json& c) {
                      Linear(c)["kda_layers"] = Json::array({1, 1, 2, 4, 5});
                    },
                    "kda_layers"},
        RefusalCase{"LayerZero",
                    [](Json& c) {
                      Linear(c)["kda_layers"] = Json::array({0, 1, 2, 4, 5});
                    },
                    "kda_layers: expected a list of layer numbers from 1 to 6, got 0"},
        RefusalCase{"LayerSeven",
                    [](Json& c) {
                      Linear(c)["kda_layers"] = Json::array({1, 2, 4, 5, 7});
                    },
                    "got 7"},
        RefusalCase{"NotAList", [](Json& c) { Linear(c)["kda_layers"] = 3; }, "kda_layers: expected a list"},
        RefusalCase{"TooManyLayers", [](Json& c) { Text(c)["num_hidden_layers"] = 1000000; },
                    "num_hidden_layers: expected an integer from 1 to 512"}),
    [](const auto& test) { return test.param.name; });

TEST(ModelSpec, RefusesADocumentThatIsNoObject) {
  EXPECT_THAT(ModelSpec::FromConfig(Json::array(), "config.json").error().message(),
              HasSubstr("config.json: expected an object, got []"));
}

TEST(ModelSpec, ShortensLongValuesInMessages) {
  EXPECT_LT(TextRefusal("hidden_act", std::string(100000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace deltafin
