// Only the released layout is admitted: every way in which a config or a file can differ from it is refused, naming
// what.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "draft/dspark_weights.h"
#include "small_dspark.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  DFIN_CHECK(at != std::string::npos, "the text holds what is replaced");
  return text.replace(at, from.size(), to);
}

Status Admit(const std::string& config, const std::vector<test::SmallTensor>& tensors) {
  const test::TempFolder folder;
  test::WriteSmallDspark(folder.path(), config, tensors);
  const Result<DsparkWeights> opened = DsparkWeights::Open(folder.path(), test::SmallTarget());
  if (!opened) return Failure(opened.error());
  return {};
}

TEST(Admission, TheExampleIsAdmittedAndReadAsItIs) {
  const test::TempFolder folder;
  const std::vector<test::SmallTensor> tensors = test::SmallTensors();
  test::WriteSmallDspark(folder.path(), test::SmallConfig(), tensors);
  Result<DsparkWeights> weights = DsparkWeights::Open(folder.path(), test::SmallTarget());
  ASSERT_TRUE(weights) << weights.error().message();
  ASSERT_TRUE(weights->Load({}));
  for (const test::SmallTensor& tensor : tensors) {
    if (tensor.name == kDsparkEmbedding) continue;
    const TensorView view = weights->Get(tensor.name);
    EXPECT_EQ(view.shape, tensor.shape);
    EXPECT_TRUE(std::equal(tensor.values.begin(), tensor.values.end(), view.bf16())) << tensor.name;
  }
}

struct Mutant {
  const char* name;
  const char* from;
  const char* to;
  const char* says;
};

class ConfigMutant : public testing::TestWithParam<Mutant> {};

TEST_P(ConfigMutant, IsRefusedAndNamed) {
  const Mutant& m = GetParam();
  const Status admitted = Admit(Replaced(test::SmallConfig(), m.from, m.to), test::SmallTensors());
  ASSERT_FALSE(admitted);
  EXPECT_NE(admitted.error().message().find(m.says), std::string::npos) << admitted.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigMutant,
    testing::Values(
        Mutant{"Architecture", "K3DSparkModel", "K3DFlashModel", "architectures"},
        Mutant{"ModelType", "k3_dspark", "k3_dflash", "model_type"},
        Mutant{"Hidden", "\"hidden_size\":16", "\"hidden_size\":32", "hidden_size"},
        Mutant{"TargetHidden", "\"target_hidden_size\":16", "\"target_hidden_size\":32", "target_hidden_size"},
        Mutant{"TargetLayers", "\"target_num_hidden_layers\":4", "\"target_num_hidden_layers\":5",
               "target_num_hidden_layers"},
        Mutant{"Vocabulary", "\"vocab_size\":32", "\"vocab_size\":64", "vocab_size"},
        Mutant{"DraftVocabulary", "\"draft_vocab_size\":32", "\"draft_vocab_size\":16", "draft_vocab_size"},
        Mutant{"TapsNotAscending", "[0,2]", "[2,0]", "target_layer_ids"},
        Mutant{"TapsTwice", "[0,2]", "[2,2]", "target_layer_ids"},
        Mutant{"TapBeyondTheLastLayer", "[0,2]", "[0,4]", "target_layer_ids"},
        Mutant{"TapBelowZero", "[0,2]", "[-1,2]", "target_layer_ids"},
        Mutant{"TapNoNumber", "[0,2]", "[0,\"2\"]", "target_layer_ids"},
        Mutant{"TapCount", "\"num_target_layers\":2", "\"num_target_layers\":3", "target_layer_ids"},
        Mutant{"MarkovType", "vanilla", "gated", "markov_head_type"},
        Mutant{"MlaWithoutRotation", "\"mla_use_nope\":false", "\"mla_use_nope\":true", "mla_use_nope"},
        Mutant{"MlaWithGate", "\"mla_use_output_gate\":false", "\"mla_use_output_gate\":true", "mla_use_output_gate"},
        Mutant{"RopeType", "\"rope_type\":\"yarn\"", "\"rope_type\":\"linear\"", "rope_type"},
        Mutant{"RopeThetaTwoValues", "\"original_max_position_embeddings\":32,\"rope_theta\":50000.0",
               "\"original_max_position_embeddings\":32,\"rope_theta\":10000.0", "rope_theta"},
        Mutant{"MaskOutside", "\"mask_token_id\":30", "\"mask_token_id\":32", "mask_token_id"},
        Mutant{"MaskNegative", "\"mask_token_id\":30", "\"mask_token_id\":-1", "mask_token_id"},
        Mutant{"GroupedQueries", "\"num_key_value_heads\":2", "\"num_key_value_heads\":1", "num_key_value_heads"},
        Mutant{"NoConfidence", "\"enable_confidence_head\":true", "\"enable_confidence_head\":false",
               "enable_confidence_head"},
        Mutant{"TiedEmbeddings", "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true",
               "tie_word_embeddings"},
        Mutant{"OddRotation", "\"qk_rope_head_dim\":4", "\"qk_rope_head_dim\":3", "qk_rope_head_dim"},
        Mutant{"NoLayers", "\"num_hidden_layers\":2", "\"num_hidden_layers\":0", "num_hidden_layers"},
        Mutant{"HugeWidth", "\"intermediate_size\":24", "\"intermediate_size\":99999999999", "intermediate_size"},
        Mutant{"WidthNoNumber", "\"q_lora_rank\":8", "\"q_lora_rank\":8.5", "q_lora_rank"},
        Mutant{"MissingField", "\"markov_rank\":4,", "", "markov_rank: missing"},
        Mutant{"KeyTwice", "\"markov_rank\":4,", "\"markov_rank\":4,\"markov_rank\":4,", "twice"},
        Mutant{"InnerKeyTwice", "\"beta_slow\":1,", "\"beta_slow\":1,\"beta_slow\":1,", "twice"},
        Mutant{"NoJson", "\"model_type\"", "model_type", "JSON"}),
    [](const testing::TestParamInfo<Mutant>& info) { return info.param.name; });

TEST(FileMutants, AreRefusedAndNamed) {
  const auto expect = [](std::vector<test::SmallTensor> tensors, const char* says) {
    const Status admitted = Admit(test::SmallConfig(), tensors);
    ASSERT_FALSE(admitted) << says;
    EXPECT_NE(admitted.error().message().find(says), std::string::npos) << admitted.error().message();
  };
  std::vector<test::SmallTensor> missing = test::SmallTensors();
  missing.erase(missing.begin() + 5);
  expect(missing, "missing");
  std::vector<test::SmallTensor> extra = test::SmallTensors();
  extra.push_back({"fc_norm.weight", {16}, std::vector<uint16_t>(16)});
  expect(extra, "fc_norm.weight");
  std::vector<test::SmallTensor> wide = test::SmallTensors();
  wide[3].dtype = DType::kF32;
  wide[3].values.resize(wide[3].values.size() * 2);
  expect(wide, "expected BF16, got F32");
  std::vector<test::SmallTensor> turned = test::SmallTensors();
  turned[3].shape = {32, 16};
  expect(turned, "expected [16, 32], got [32, 16]");
}

class Files : public testing::Test {
 protected:
  Files() { test::WriteSmallDspark(folder_.path(), test::SmallConfig(), test::SmallTensors()); }
  std::string Opened() const {
    const Result<DsparkWeights> opened = DsparkWeights::Open(folder_.path(), test::SmallTarget());
    return opened ? "" : opened.error().message();
  }
  const test::TempFolder folder_;
  const std::string file_ = folder_.path() + "/model.safetensors", config_ = folder_.path() + "/config.json";
};

TEST_F(Files, AreWhole) {
  ASSERT_EQ(Opened(), "");
  const uint64_t bytes = std::filesystem::file_size(file_);
  std::filesystem::resize_file(file_, bytes - 2);
  EXPECT_NE(Opened(), "");
  std::filesystem::resize_file(file_, bytes + 2);
  EXPECT_NE(Opened(), "");
}

TEST_F(Files, AreNoLinks) {
  for (const std::string& path : {file_, config_}) {
    std::filesystem::rename(path, path + ".there");
    std::filesystem::create_symlink(path + ".there", path);
    EXPECT_NE(Opened().find("symbolic link"), std::string::npos) << Opened();
    std::filesystem::remove(path);
    std::filesystem::rename(path + ".there", path);
  }
}

TEST_F(Files, AreThere) {
  std::filesystem::remove(config_);
  EXPECT_NE(Opened().find("config.json"), std::string::npos);
  EXPECT_FALSE(DsparkWeights::Open(folder_.path() + "/nothing", test::SmallTarget()));
}

TEST_F(Files, LeaveNoGaps) {
  // The header says that the data begins two bytes later.
  std::ifstream in(file_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string from = "\"data_offsets\":[0,2]";
  ASSERT_NE(bytes.find(from), std::string::npos);
  std::ofstream(file_, std::ios::binary) << Replaced(bytes, from, "\"data_offsets\":[2,4]");
  EXPECT_NE(Opened(), "");
}

TEST_F(Files, LoadingStopsWhenItIsCancelled) {
  Result<DsparkWeights> weights = DsparkWeights::Open(folder_.path(), test::SmallTarget());
  ASSERT_TRUE(weights);
  CancelSource cancel;
  cancel.Cancel();
  const Status loaded = weights->Load(cancel.token());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deltafin
