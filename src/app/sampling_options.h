// sampling_options.h: the sampling options of run and chat, and the model's own defaults.
//
// An option that is not given is empty, so that "given" can be told from "default". How sampling works is
// engine/sampler.h. Thread rule: value type. Errors name the option or the key of generation_config.json.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/sampler.h"

namespace CLI {
class App;
}

namespace deltafin {

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;

  void AddTo(CLI::App& app);
  // Options given win over `defaults`. Without a seed one is drawn. kInvalidArgument: a value out of range, or an
  // option that does nothing because the choice is greedy.
  Result<SamplingParams> Resolve(SamplingParams defaults) const;
};

// generation_config.json of the model folder: do_sample false is greedy; temperature, top_p, top_k, min_p,
// repetition_penalty. What it does not say is temperature 1, top_p 0.95.
Result<SamplingParams> ModelSamplingDefaults(const std::string& folder);

}  // namespace deltafin
