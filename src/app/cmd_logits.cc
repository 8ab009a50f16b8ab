// `deltafin logits`: the logits of a prompt, and with --taps every intermediate value, as a safetensors file.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "app/tap_recorder.h"
#include "base/float_types.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/safetensors_writer.h"

namespace deltafin {
namespace {

struct LogitsOptions {
  CommonOptions common;
  std::string prompt_ids, then_ids, out;
  bool taps = false;
};

// The output file in the making: values that it keeps, and views of what lives elsewhere.
class TensorList {
 public:
  template <typename T>
  void Add(const std::string& name, DType dtype, Shape shape, std::vector<T> values) {
    auto kept = std::make_shared<std::vector<T>>(std::move(values));
    AddView(name, dtype, shape, *kept);
    keep_.push_back(kept);
  }
  template <typename T>
  void AddView(const std::string& name, DType dtype, Shape shape, const std::vector<T>& values) {
    tensors_.push_back({{name, dtype, shape}, std::as_bytes(std::span(values))});
  }
  std::vector<NamedTensor>& tensors() { return tensors_; }

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<std::shared_ptr<void>> keep_;
};

void AddState(const ModelSpec& spec, const SequenceState& state, TensorList& list) {
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    if (layer.attention == AttentionKind::kKda) {
      const int64_t h = spec.kda_heads, d = spec.kda_head_dim;
      const float* s = state.CurrentS(layer.kda_index);
      list.Add("state.kda." + std::to_string(l), DType::kF32, {h, d, d}, std::vector<float>(s, s + h * d * d));
      continue;
    }
    const PagedRows rows = state.CurrentMla(layer.mla_index);
    std::vector<float> latent, rope;
    for (int64_t r = 0; r < rows.rows; ++r) {
      for (int64_t c = 0; c < rows.width; ++c)
        (c < spec.kv_lora_rank ? latent : rope)
            .push_back(rows.is_bf16() ? Bf16ToFloat(rows.bf16_row(r)[c]) : rows.row(r)[c]);
    }
    list.Add("state.latent." + std::to_string(l), DType::kF32, {rows.rows, spec.kv_lora_rank}, std::move(latent));
    list.Add("state.rope_key." + std::to_string(l), DType::kF32, {rows.rows, spec.qk_rope_head_dim}, std::move(rope));
  }
}

// `taps` outlives the list.
void AddTaps(const TapRecorder& taps, TensorList& list) {
  for (const auto& [name, t] : taps.floats())
    list.AddView(name, DType::kF32, {static_cast<int64_t>(t.values.size()) / t.width, t.width}, t.values);
  for (const auto& [name, t] : taps.ids())
    list.AddView(name, DType::kI64, {static_cast<int64_t>(t.values.size()) / t.width, t.width}, t.values);
}

std::vector<int64_t> Wide(const std::vector<TokenId>& ids) { return {ids.begin(), ids.end()}; }

// Better before the work than after it. Nothing is ever written to a model folder.
Status CheckOutput(const std::string& path, const std::string& model) {
  std::error_code ignored;
  const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(path), ignored).parent_path();
  if (folder == std::filesystem::weakly_canonical(std::filesystem::absolute(model), ignored))
    return Fail(ErrorCode::kInvalidArgument, "--out ", path, ": is in the model folder, which is never written to");
  DFIN_TRY(const AtomicFile probe, AtomicFile::Create(path));
  return {};
}

Result<int> RunLogits(const LogitsOptions& options) {
  DFIN_TRY(const std::vector<TokenId> prompt, ParseIds(options.prompt_ids, "--prompt-ids"));
  std::vector<TokenId> then;
  if (!options.then_ids.empty()) {
    DFIN_TRY(then, ParseIds(options.then_ids, "--then-ids"));
  }
  DFIN_TRY_VOID(CheckOutput(options.out, options.common.model));
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), then.begin(), then.end());
  EngineSetup setup;
  DFIN_TRY_VOID(setup.Open(options.common, {.result_logit_rows = static_cast<int64_t>(all.size()),
                                            .result_tap_rows = options.taps ? static_cast<int64_t>(prompt.size()) : 0,
                                            .prompt = all}));
  const ModelSpec& spec = setup.engine->spec();
  DFIN_TRY(Session session, setup.engine->NewSession());

  TensorList list;
  TapRecorder taps;
  const auto feed = [&](const std::vector<TokenId>& ids, const char* name, ActivationTap* tap) -> Status {
    const auto rows = static_cast<int64_t>(ids.size());
    std::vector<float> logits(static_cast<size_t>(rows * spec.vocab_size));
    setup.monitor.Enter(Phase::kPrefill, ids.size(), SteadyClock().NowNs());
    DFIN_TRY_VOID(
        setup.engine->Feed(session, ids, Rows(logits.data(), rows, spec.vocab_size), setup.interrupt.token(), tap));
    list.Add(name, DType::kF32, {rows, spec.vocab_size}, std::move(logits));
    return {};
  };
  DFIN_TRY_VOID(feed(prompt, "logits", options.taps ? &taps : nullptr));
  if (!then.empty()) DFIN_TRY_VOID(feed(then, "next_logits", nullptr));
  setup.monitor.Enter(Phase::kIdle, 0, SteadyClock().NowNs());
  if (options.taps) {
    list.Add("prompt_ids", DType::kI64, {static_cast<int64_t>(prompt.size())}, Wide(prompt));
    if (!then.empty()) list.Add("next_ids", DType::kI64, {static_cast<int64_t>(then.size())}, Wide(then));
    AddTaps(taps, list);
    AddState(spec, session.state(), list);
  }
  DFIN_TRY_VOID(WriteSafetensors(options.out, list.tensors()));
  return kExitDone;
}

}  // namespace

Command AddLogits(CLI::App& root) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* app = root.add_subcommand("logits", "Write the logits of a prompt to a safetensors file");
  options->common.AddTo(*app);
  app->add_option("--prompt-ids", options->prompt_ids, "Token ids, comma-separated")->required();
  app->add_option("--then-ids", options->then_ids, "A second chunk, fed after the first");
  app->add_flag("--taps", options->taps, "Also every intermediate value of the first chunk, and the state after both");
  app->add_option("--out", options->out, "File to write")->required()->type_name("F.safetensors");
  return {app, [options] { return RunLogits(*options); }};
}

}  // namespace deltafin
