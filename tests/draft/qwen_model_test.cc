// The forward pass of Qwen3 against a PyTorch computation in float32 (tests/data/README.md), and files that are no such
// model.
#include "draft/qwen_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "draft/draft_kind.h"
#include "support/golden_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

const std::string kFolder = test::RepoPath("models/qwen3-nano");
constexpr float kTolerance = 1e-4f;  // relative to the largest value

std::string ConfigText() { return *ReadWholeFile(kFolder + "/config.json", 1 << 20); }

std::unique_ptr<Backend> MakeBackend(const std::string& device) {
  const BackendOptions options{.device = device, .isa = "auto", .threads = 2};
  return device == "cpu" ? std::move(*CreateCpuBackend(options)) : std::move(*CreateReferenceBackend(options));
}

class Nano {
 public:
  explicit Nano(const std::string& device, bool bf16_cache = false, int64_t capacity = 200)
      : config_(*QwenConfig::Parse(ConfigText(), "config.json")),
        weights_(std::move(*DraftTensors::Open({kFolder + "/model.safetensors"}, QwenTensors(config_), "Qwen3"))),
        backend_(MakeBackend(device)) {
    DFIN_CHECK(weights_.Load({}).has_value(), "the repository has the weights");
    DFIN_CHECK(backend_->Reserve(QwenModel::Workspace(config_)).has_value(), "memory");
    model = std::move(*QwenModel::Create(config_, weights_, *backend_, {capacity, bf16_cache}));
  }
  std::vector<float> Logits() const { return {model->logits().begin(), model->logits().end()}; }

 private:
  QwenConfig config_;
  DraftTensors weights_;
  std::unique_ptr<Backend> backend_;

 public:
  std::unique_ptr<QwenModel> model;
};

const test::GoldenFile& Golden() {
  static const test::GoldenFile golden(test::RepoPath("tests/data/qwen3-nano/expected.golden"));
  return golden;
}

std::vector<TokenId> Ids(const std::string& name) {
  const std::vector<int64_t>& ids = Golden().Ints(name);
  return {ids.begin(), ids.end()};
}

float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

class QwenDevice : public testing::TestWithParam<const char*> {};

TEST_P(QwenDevice, LogitsOfEveryPositionAreThoseOfPyTorch) {
  for (const std::string p : {"0", "1", "2"}) {
    SCOPED_TRACE("prompt " + p);
    Nano nano(GetParam());
    const std::vector<float>& expected = Golden().Floats(p + ".logits");
    const std::vector<TokenId> prompt = Ids(p + ".prompt_ids");
    const size_t vocab = expected.size() / prompt.size();
    const float limit = kTolerance * Largest(expected);
    for (size_t t = 0; t < prompt.size(); ++t) {
      nano.model->Append({&prompt[t], 1});
      for (size_t i = 0; i < vocab; ++i)
        ASSERT_NEAR(nano.model->logits()[i], expected[t * vocab + i], limit) << "position " << t << ", id " << i;
    }
  }
}

TEST_P(QwenDevice, ItGoesOnGreedilyAsPyTorchDoes) {
  size_t in_all = 0;
  for (const std::string p : {"0", "1", "2"}) {
    SCOPED_TRACE("prompt " + p);
    Nano nano(GetParam());
    nano.model->Append(Ids(p + ".prompt_ids"));
    const std::vector<TokenId> greedy = Ids(p + ".greedy");
    size_t compared = 0;
    for (; compared < greedy.size() && Golden().Floats(p + ".margins")[compared] >= 0.01f; ++compared) {
      const std::vector<float> logits = nano.Logits();
      ASSERT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), greedy[compared]) << compared;
      nano.model->Append({&greedy[compared], 1});
    }
    in_all += compared;  // behind two that are nearly equal another text may follow
  }
  EXPECT_GT(in_all, 30u);
}

INSTANTIATE_TEST_SUITE_P(Devices, QwenDevice, testing::Values("reference", "cpu"));

std::vector<TokenId> ManyIds(size_t count) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>((i * 2654435761u >> 7) % 4064));
  return ids;
}

TEST(Reading, GivesTheSameBitsHoweverIdsAreCut) {
  const std::vector<TokenId> ids = ManyIds(150);
  for (const bool bf16 : {false, true}) {
    std::vector<float> expected;
    for (const size_t piece : {size_t{150}, size_t{1}, size_t{7}, size_t{63}, size_t{65}}) {
      Nano nano("cpu", bf16);
      for (size_t at = 0; at < ids.size(); at += piece)
        nano.model->Append(std::span(ids).subspan(at, std::min(piece, ids.size() - at)));
      EXPECT_EQ(nano.model->length(), 150);
      if (expected.empty()) expected = nano.Logits();
      EXPECT_EQ(std::memcmp(nano.Logits().data(), expected.data(), expected.size() * sizeof(float)), 0) << piece;
    }
  }
}

TEST(Reading, WhatWasForgottenLeavesNothingBehind) {
  const std::vector<TokenId> ids = ManyIds(100);
  Nano straight("cpu", true), back("cpu", true);
  straight.model->Append(ids);
  back.model->Append(std::span(ids).first(70));
  back.model->Append(std::vector<TokenId>(90, 11));
  back.model->Truncate(70);
  back.model->Append(std::span(ids).subspan(70));
  EXPECT_EQ(back.Logits(), straight.Logits());
}

TEST(Reading, ACacheInBf16ChangesLittle) {
  const std::vector<TokenId> prompt = Ids("0.prompt_ids");
  Nano exact("cpu"), rounded("cpu", true);
  exact.model->Append(prompt);
  rounded.model->Append(prompt);
  const std::vector<float> expected = exact.Logits(), got = rounded.Logits();
  EXPECT_NE(got, expected);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.02f * Largest(expected));
}

struct Mutant {
  const char* name;
  const char* from;
  const char* to;
  const char* says;
};

class QwenConfigMutant : public testing::TestWithParam<Mutant> {};

TEST_P(QwenConfigMutant, IsRefusedAndNamed) {
  std::string text = ConfigText();
  const Mutant& m = GetParam();
  const size_t at = text.find(m.from);
  ASSERT_NE(at, std::string::npos) << m.from;
  const Result<QwenConfig> config = QwenConfig::Parse(text.replace(at, std::string(m.from).size(), m.to), "config");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message().find(m.says), std::string::npos) << config.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, QwenConfigMutant,
    testing::Values(
        Mutant{"Architecture", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "architectures"},
        Mutant{"ModelType", "\"qwen3\"", "\"qwen2\"", "model_type"},
        Mutant{"Biases", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias"},
        Mutant{"Activation", "\"silu\"", "\"gelu\"", "hidden_act"},
        Mutant{"OutputMatrix", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
               "tie_word_embeddings"},
        Mutant{"Scaling", "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\"}", "rope_scaling"},
        Mutant{"Window", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "use_sliding_window"},
        Mutant{"OddHead", "\"head_dim\": 64", "\"head_dim\": 63", "head_dim"},
        Mutant{"HugeHead", "\"head_dim\": 64", "\"head_dim\": 65536", "head_dim"},
        Mutant{"Groups", "\"num_key_value_heads\": 3", "\"num_key_value_heads\": 4", "num_key_value_heads"},
        Mutant{"NoKeyHeads", "\"num_key_value_heads\": 3", "\"num_key_value_heads\": 0", "num_key_value_heads"},
        Mutant{"NoLayers", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 0", "num_hidden_layers"},
        Mutant{"ManyLayers", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1000000", "num_hidden_layers"},
        Mutant{"Vocabulary", "\"vocab_size\": 4096", "\"vocab_size\": -1", "vocab_size"},
        Mutant{"Epsilon", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "rms_norm_eps"},
        Mutant{"Theta", "\"rope_theta\": 1000000", "\"rope_theta\": \"big\"", "rope_theta"},
        Mutant{"EndOutside", "\"eos_token_id\": 4064", "\"eos_token_id\": 4096", "eos_token_id"},
        Mutant{"EndText", "\"eos_token_id\": 4064", "\"eos_token_id\": [1, \"2\"]", "eos_token_id"},
        Mutant{"Missing", "\"hidden_size\": 192,", "", "hidden_size: missing"},
        Mutant{"Twice", "\"hidden_size\": 192,", "\"hidden_size\": 192, \"hidden_size\": 192,", "twice"},
        Mutant{"NoJson", "\"model_type\"", "model_type", "JSON"}),
    [](const testing::TestParamInfo<Mutant>& info) { return info.param.name; });

// A model of one layer with two-wide everything, as a file with what `change` makes of its tensors.
Status Admitted(const std::function<void(std::vector<DraftTensor>&)>& change, int64_t more_bytes = 0) {
  const QwenConfig config{.hidden = 2,
                          .intermediate = 2,
                          .layers = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 2,
                          .vocab = 4,
                          .positions = 8,
                          .norm_eps = 1e-6f,
                          .rope_theta = 1e4,
                          .end_tokens = {}};
  std::vector<DraftTensor> tensors = QwenTensors(config);
  change(tensors);
  std::vector<std::vector<uint16_t>> values;
  for (const DraftTensor& tensor : tensors) values.emplace_back(static_cast<size_t>(tensor.shape.elements()));
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < tensors.size(); ++i)
    named.push_back({{tensors[i].name, DType::kBF16, tensors[i].shape}, std::as_bytes(std::span(values[i]))});
  const test::TempFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  DFIN_TRY_VOID(WriteSafetensors(path, named));
  if (more_bytes != 0) {
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes + more_bytes));
  }
  DFIN_TRY(DraftTensors opened, DraftTensors::Open({path}, QwenTensors(config), "Qwen3"));
  return opened.Load({});
}

void ExpectRefused(const Status& status, const char* says) {
  ASSERT_FALSE(status) << says;
  EXPECT_NE(status.error().message().find(says), std::string::npos) << status.error().message();
}

TEST(QwenFile, HoldsWhatTheConfigSaysAndMayRepeatTheEmbedding) {
  EXPECT_TRUE(Admitted([](auto&) {}));
  EXPECT_TRUE(Admitted([](auto& t) { std::erase_if(t, [](const auto& x) { return x.name == "lm_head.weight"; }); }));
}

TEST(QwenFile, AnyOtherIsRefused) {
  ExpectRefused(Admitted([](auto& t) { t.pop_back(); }), "model.norm.weight: missing");
  ExpectRefused(Admitted([](auto& t) { t.push_back({"model.extra.weight", {2}}); }), "model.extra.weight");
  ExpectRefused(Admitted([](auto& t) { t.back().shape = {3}; }), "expected [2], got [3]");
  EXPECT_FALSE(Admitted([](auto&) {}, 2));
  EXPECT_FALSE(Admitted([](auto&) {}, -2));
}

TEST(QwenFile, MayComeInParts) {
  const std::vector<DraftTensor> tensors = {{"a", {2, 3}}, {"b", {4}}, {"c", {5, 2}}};
  const std::vector<uint16_t> a = {1, 2, 3, 4, 5, 6}, b = {7, 8, 9, 10}, c = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const auto named = [&](size_t i, const std::vector<uint16_t>& values) {
    return NamedTensor{{tensors[i].name, DType::kBF16, tensors[i].shape}, std::as_bytes(std::span(values))};
  };
  const test::TempFolder folder;
  const std::string first = folder.path() + "/model-00001-of-00002.safetensors";
  const std::string second = folder.path() + "/model-00002-of-00002.safetensors";
  EXPECT_EQ(FindDraftFiles(folder.path()).error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(WriteSafetensors(first, std::vector{named(0, a), named(2, c)}));
  const auto one_missing = FindDraftFiles(folder.path());
  ASSERT_FALSE(one_missing);
  EXPECT_NE(one_missing.error().message().find("model-00002-of-00002.safetensors: missing"), std::string::npos);
  ASSERT_TRUE(WriteSafetensors(second, std::vector{named(1, b)}));
  const std::vector<std::string> files = *FindDraftFiles(folder.path());
  EXPECT_EQ(files, (std::vector{first, second}));
  DraftTensors opened = *DraftTensors::Open(files, tensors, "Qwen3");
  ASSERT_TRUE(opened.Load({}));
  EXPECT_TRUE(std::equal(a.begin(), a.end(), opened.Get("a").bf16()));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), opened.Get("b").bf16()));
  EXPECT_TRUE(std::equal(c.begin(), c.end(), opened.Get("c").bf16()));
  ASSERT_TRUE(WriteSafetensors(second, std::vector{named(1, b), named(0, a)}));
  const auto twice = DraftTensors::Open(files, tensors, "Qwen3");
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message().find("tensor a: in two of the files"), std::string::npos);
}

TEST(DraftKinds, AreToldApartByTheConfig) {
  EXPECT_EQ(*DraftKindOf(kFolder), DraftKind::kQwen);
  EXPECT_EQ(*DraftKindOf(test::RepoPath("models/k3-nano-dspark")), DraftKind::kDspark);
  const Result<DraftKind> neither = DraftKindOf(test::RepoPath("models/k3-nano"));
  ASSERT_FALSE(neither);
  EXPECT_NE(neither.error().message().find("model_type"), std::string::npos);
  EXPECT_FALSE(DraftKindOf("/nowhere"));
}

}  // namespace
}  // namespace deltafin
