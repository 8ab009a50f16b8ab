#include "small_dspark.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "checkpoint/safetensors_writer.h"

namespace deltafin::test {
namespace {

constexpr uint64_t kHeadTensor = 1000, kContextTensor = 2011;

bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

double Value(const std::string& name, const Shape& shape, uint64_t tensor, uint64_t element) {
  const double u = SmallUniform(tensor, element);
  if (Contains(name, "norm")) return 1 + u / 4;
  if (Contains(name, "embed_tokens")) return 2 * u;
  if (Contains(name, "bias")) return u;
  return 4 * u / std::sqrt(static_cast<double>(shape[shape.rank() - 1]));
}

std::vector<float> Floats(uint64_t tensor, int64_t count, double factor) {
  std::vector<float> out;
  for (int64_t e = 0; e < count; ++e)
    out.push_back(
        Bf16ToFloat(FloatToBf16(static_cast<float>(factor * SmallUniform(tensor, static_cast<uint64_t>(e))))));
  return out;
}

}  // namespace

uint64_t SplitMix(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double SmallUniform(uint64_t tensor, uint64_t element) {
  return static_cast<double>(SplitMix((tensor << 32) + element) >> 40) / 16777216.0 - 0.5;
}

ModelSpec SmallTarget() {
  ModelSpec spec;
  spec.hidden_size = kSmallHidden;
  spec.vocab_size = kSmallVocab;
  spec.layers.resize(4);
  return spec;
}

std::string SmallConfig() {
  return R"({"architectures":["K3DSparkModel"],"model_type":"k3_dspark","hidden_size":16,"intermediate_size":24,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"q_lora_rank":8,"kv_lora_rank":8,
    "qk_nope_head_dim":4,"qk_rope_head_dim":4,"v_head_dim":4,"mla_use_nope":false,"mla_use_output_gate":false,
    "vocab_size":32,"draft_vocab_size":32,"rms_norm_eps":1e-05,"max_position_embeddings":4096,"rope_theta":50000.0,
    "rope_parameters":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32,"rope_theta":50000.0,
    "beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":1.0},
    "num_target_layers":2,"target_hidden_size":16,"target_num_hidden_layers":4,"target_layer_ids":[0,2],
    "mask_token_id":30,"bos_token_id":1,"eos_token_id":2,"pad_token_id":31,
    "markov_rank":4,"markov_head_type":"vanilla","enable_confidence_head":true,"confidence_head_with_markov":true,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","_torchspec_version":"0.1.0"})";
}

std::vector<SmallTensor> SmallTensors() {
  const Result<DsparkConfig> config = DsparkConfig::Parse(SmallConfig(), "config.json", SmallTarget());
  DFIN_CHECK(config.has_value(), "the example's config is good");
  std::vector<SmallTensor> out;
  for (const DraftTensor& tensor : DsparkTensors(*config)) {  // sorted by name
    SmallTensor made{tensor.name, tensor.shape, {}};
    for (int64_t e = 0; e < tensor.shape.elements(); ++e)
      made.values.push_back(
          FloatToBf16(static_cast<float>(Value(tensor.name, tensor.shape, out.size(), static_cast<uint64_t>(e)))));
    out.push_back(std::move(made));
  }
  return out;
}

void WriteSmallDspark(const std::string& folder, const std::string& config, const std::vector<SmallTensor>& tensors) {
  std::ofstream(folder + "/config.json") << config;
  std::vector<NamedTensor> named;
  for (const SmallTensor& t : tensors)
    named.push_back({{t.name, t.dtype, t.shape}, std::as_bytes(std::span(t.values))});
  const Status written = WriteSafetensors(folder + "/model.safetensors", named);
  DFIN_CHECK(written.has_value(), "a temporary folder can be written to");
}

std::vector<float> SmallContext() { return Floats(kContextTensor, 3 * 2 * kSmallHidden, 2); }

SmallTables::SmallTables() : head(Floats(kHeadTensor, kSmallVocab * kSmallHidden, 4 / std::sqrt(16.0))) {
  for (const SmallTensor& tensor : SmallTensors())
    if (tensor.name == kDsparkEmbedding)
      for (const uint16_t value : tensor.values) embedding.push_back(Bf16ToFloat(value));
}

Status SmallTables::Embed(std::span<const TokenId> ids, const Rows& out) {
  if (fails) return Fail(ErrorCode::kIo, "made to fail");
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy_n(embedding.begin() + ids[i] * kSmallHidden, kSmallHidden, out.row(static_cast<int64_t>(i)));
  return {};
}

Status SmallTables::Head(const ConstRows& h, const Rows& logits) {
  base_logits.clear();
  for (int64_t r = 0; r < h.rows; ++r)
    for (int64_t v = 0; v < kSmallVocab; ++v) {
      float sum = 0;
      for (int64_t i = 0; i < kSmallHidden; ++i) sum += head[static_cast<size_t>(v * kSmallHidden + i)] * h.row(r)[i];
      logits.row(r)[v] = sum;
      base_logits.push_back(sum);
    }
  return {};
}

}  // namespace deltafin::test
