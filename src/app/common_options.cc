#include "app/common_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>

#include "app/choices.h"
#include "app/option_checks.h"
#include "app/stream_options.h"
#include "base/units.h"

namespace deltafin {
namespace {

Status CheckChoices(const CommonOptions& o) {
  const std::pair<const char*, const std::string*> values[] = {{"--io", &o.io},
                                                               {"--pin", &o.pin},
                                                               {"--prefetch", &o.prefetch},
                                                               {"--warm-start", &o.warm_start},
                                                               {"--kv-dtype", &o.kv_dtype},
                                                               {"--dense-mode", &o.dense_mode}};
  for (const auto& [option, value] : values) DFIN_TRY_VOID(CheckChoice(option, *value));
  return {};
}

}  // namespace

void CommonOptions::AddTo(CLI::App& app) {
  app.add_option("--model", model, "Folder of the checkpoint: config.json, index, shards")
      ->required()
      ->type_name("DIR");
  app.add_option("--memory", memory, "Memory to use in all, e.g. 24GiB (default: most of what is available)")
      ->type_name("SIZE");
  app.add_option("--expert-cache", expert_cache, "Memory for cached experts (default: what the rest leaves)")
      ->type_name("SIZE");
  app.add_option("--threads", threads, "Threads that compute (default: one for each fast core)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--pin", pin, "Threads on cores of their own: auto or off (for machines shared with others)");
  app.add_option("--context", context, "Most tokens of a conversation (default: 8192 or the model's limit)")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  app.add_option("--chunk", chunk, "Prompt tokens computed together (default: from the memory plan)")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  app.add_option("--device", device, "auto, cpu or reference");
  app.add_option("--isa", isa, "Instruction set: auto, avx2, avx512, avx512_vnni, neon");
  app.add_option("--io", io, "Reading engine: auto, uring or pread");
  app.add_option("--prefetch", prefetch, "Read the next layer's likely experts while drives are idle: auto or off");
  app.add_option("--warm-start", warm_start,
                 "Read what earlier runs wanted most into free cache slots in the background: auto or off");
  app.add_option("--expert-trace", expert_trace, "Write which experts every step wanted (for bench cache)")
      ->type_name("FILE");
  app.add_option("--dense-mode", dense_mode, "Dense weights: auto, resident or stream");
  app.add_option("--kv-dtype", kv_dtype,
                 "Latents of the context: f32, or bf16 for half their memory and other results");
  app.add_option("--state-dir", state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app.add_flag("--no-state", no_state, "Keep nothing between runs");
  app.add_flag("--quiet", quiet, "No plan and no progress on stderr");
  app.add_option("--experts", experts, "Folder of an expert set made by pack, one for each drive (repeatable)")
      ->type_name("DIR");
  app.add_flag("--verify-reads", verify_reads, "Check every expert that is read against its checksum");
  AddStreamOptions(app, *this);
  app.add_option("--dense", dense,
                 "Folder of dense weights in 12 bits, made by pack --dense: same results, less memory")
      ->type_name("DIR");
  app.add_option(
      "--draft", draft,
      "Check several likely tokens in one step, same answer: auto (while it pays), off, ngram, dspark or qwen");
  app.add_option("--draft-model", draft_model,
                 "Model that drafts: a DSpark drafter, or for raw completion a Qwen3 model")
      ->type_name("DIR");
  app.add_option("--max-drafts", max_drafts, "Most drafted tokens of a step, 1 to 7 (default: 7)")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
}

Result<EngineOptions> CommonOptions::ToEngineOptions() const {
  const auto refuse = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (no_state && !state_dir.empty()) return refuse("--no-state and --state-dir: give one of them");
  DFIN_TRY_VOID(CheckChoices(*this));
  EngineOptions out;
  out.model = model;
  if (!memory.empty()) {
    Result<uint64_t> size = ParseSize(memory);
    if (!size) return FailWith(std::move(size), "--memory");
    out.memory = *size;
  }
  if (!expert_cache.empty()) {
    Result<uint64_t> size = ParseSize(expert_cache);
    if (!size) return FailWith(std::move(size), "--expert-cache");
    out.expert_cache = *size;
  }
  out.threads = threads;
  out.pin = pin == "auto";
  out.context = context;
  out.chunk = chunk;
  out.device = device;
  out.isa = isa;
  out.io = io;
  out.experts = experts;
  out.dense = dense;
  out.verify_reads = verify_reads;
  DFIN_TRY(out.stream, ToStreamOptions(*this));
  out.prefetch = prefetch == "auto";
  out.warm_start = warm_start == "auto";
  out.expert_trace = expert_trace;
  out.kv_dtype = kv_dtype == "f32" ? DType::kF32 : DType::kBF16;
  out.dense_mode = dense_mode == "auto"       ? DenseMode::kAuto
                   : dense_mode == "resident" ? DenseMode::kResident
                                              : DenseMode::kStream;
  if (!no_state) out.state_dir = state_dir.empty() ? DefaultStateFolder() : state_dir;
  return out;
}

std::string DefaultStateFolder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/deltafin";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.local/state/deltafin";
  return "";
}

Result<std::vector<int32_t>> ParseIds(const std::string& text, const std::string& option) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0)
      return Fail(ErrorCode::kInvalidArgument, option, ": expected token ids such as 1,2,3, got \"",
                  std::string(at, std::min<size_t>(12, static_cast<size_t>(end - at))), "\"");
    ids.push_back(id);
    at = next;
  }
  if (ids.empty()) return Fail(ErrorCode::kInvalidArgument, option, ": expected at least one token id, got none");
  return ids;
}

}  // namespace deltafin
