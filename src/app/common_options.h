// common_options.h: the options that run, chat and logits share, and how they become EngineOptions.
//
// An option that this build cannot honour is refused with the reason, never ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace deltafin {

struct CommonOptions {
  std::string model;
  std::string memory, expert_cache;  // sizes as written
  int threads = 0;
  int64_t context = 0, chunk = 0;
  std::string device = "auto", isa = "auto", io = "auto", dense_mode = "auto", prefetch = "auto", pin = "auto",
              kv_dtype = "f32";
  std::string warm_start = "auto", expert_trace;
  std::string state_dir;
  bool no_state = false;
  bool quiet = false;  // no plan and no progress on stderr
  std::vector<std::string> experts;
  bool verify_reads = false;
  // Of a model whose experts are fetched as they are routed (app/stream_options.h).
  bool offline = false;
  std::optional<std::string> check_twice;
  std::optional<int> connections, fetch_attempts;
  std::string keep_experts, token_file, proxy, endpoint;
  std::string dense, draft = "auto", draft_model;
  std::optional<int64_t> max_drafts;

  void AddTo(CLI::App& app);
  // All but what is said of drafting (app/draft_setup.h). kInvalidArgument naming the option.
  Result<EngineOptions> ToEngineOptions() const;
};

// $XDG_STATE_HOME/deltafin, else ~/.local/state/deltafin; "" when neither is known.
std::string DefaultStateFolder();

// Comma- or space-separated ids.
Result<std::vector<int32_t>> ParseIds(const std::string& text, const std::string& option);

}  // namespace deltafin
