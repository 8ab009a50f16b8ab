#include "app/sampling_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "app/option_checks.h"
#include "base/json.h"

namespace deltafin {

void SamplingOptions::AddTo(CLI::App& app) {
  app.add_option("--temperature", temperature, "0 = always the likeliest token");
  app.add_option("--top-p", top_p, "Keep the likeliest tokens that together reach this probability");
  app.add_option("--top-k", top_k, "Keep the K likeliest tokens")->check([](const std::string& text) {
    return CheckWhole(text, 0);
  });
  app.add_option("--min-p", min_p, "Drop tokens less likely than this times the likeliest");
  app.add_option("--seed", seed, "Same seed, same tokens (default: drawn, and reported by --stats)")
      ->check(CheckWholeUnsigned);
  app.add_option("--presence-penalty", presence_penalty, "Subtracted from tokens already in the answer");
  app.add_option("--frequency-penalty", frequency_penalty, "Subtracted for each time a token is in the answer");
  app.add_option("--repetition-penalty", repetition_penalty, "Divides the score of tokens in prompt and answer");
}

Result<SamplingParams> SamplingOptions::Resolve(SamplingParams params) const {
  if (temperature) params.temperature = *temperature;
  if (top_p) params.top_p = *top_p;
  if (top_k) params.top_k = *top_k;
  if (min_p) params.min_p = *min_p;
  if (presence_penalty) params.presence_penalty = *presence_penalty;
  if (frequency_penalty) params.frequency_penalty = *frequency_penalty;
  if (repetition_penalty) params.repetition_penalty = *repetition_penalty;
  DFIN_TRY_VOID(params.Validate());
  if (params.temperature == 0) {
    const char* idle = top_p ? "--top-p" : top_k ? "--top-k" : min_p ? "--min-p" : seed ? "--seed" : nullptr;
    if (idle != nullptr)
      return Fail(ErrorCode::kInvalidArgument, idle,
                  ": does nothing while the likeliest token is always taken: give --temperature too");
  } else {
    params.seed = seed ? *seed : (static_cast<uint64_t>(std::random_device{}()) << 32) | std::random_device{}();
  }
  return params;
}

Result<SamplingParams> ModelSamplingDefaults(const std::string& folder) {
  SamplingParams params{.temperature = 1, .top_p = 0.95};
  const std::string path = folder + "/generation_config.json";
  Result<Json> config = ReadJsonFile(path);
  if (!config) {
    if (config.error().code() == ErrorCode::kNotFound) return params;
    return Failure(std::move(config.error()));
  }
  if (!config->is_object()) return Fail(ErrorCode::kCorrupt, path, ": expected a JSON object");
  const auto number = [&](const char* key, double fallback) -> Result<double> {
    const auto it = config->find(key);
    if (it == config->end() || it->is_null()) return fallback;
    if (!it->is_number())
      return Fail(ErrorCode::kCorrupt, path, ": ", key, ": expected a number, got ", it->type_name());
    return it->get<double>();
  };
  DFIN_TRY(params.temperature, number("temperature", params.temperature));
  DFIN_TRY(params.top_p, number("top_p", params.top_p));
  DFIN_TRY(const double top_k, number("top_k", 0));
  if (!(top_k >= 0 && top_k <= 1e9 && top_k == std::floor(top_k)))
    return Fail(ErrorCode::kCorrupt, path, ": top_k: expected a whole number, got ", top_k);
  params.top_k = static_cast<int64_t>(top_k);
  DFIN_TRY(params.min_p, number("min_p", 0));
  DFIN_TRY(params.repetition_penalty, number("repetition_penalty", 1));
  const auto sample = config->find("do_sample");
  if (sample != config->end() && !sample->is_null()) {
    if (!sample->is_boolean())
      return Fail(ErrorCode::kCorrupt, path, ": do_sample: expected true or false, got ", sample->type_name());
    if (!sample->get<bool>()) params.temperature = 0;
  }
  Status valid = params.Validate();
  if (!valid) return Failure(Error(ErrorCode::kCorrupt, valid.error().message()).WithContext(path));
  return params;
}

}  // namespace deltafin
