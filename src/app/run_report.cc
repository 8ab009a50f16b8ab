#include "app/run_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"

namespace deltafin {
namespace {

const char* ToString(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kCaller:
      return "stop";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "";
}

// Payload read for a token after the first.
double BytesPerToken(const GenerationResult& g) {
  const EngineCounters& d = g.used_decoding;
  if (g.tokens.size() < 2) return 0;
  return static_cast<double>(d.expert_bytes_demand + d.dense_bytes_streamed) / static_cast<double>(g.tokens.size() - 1);
}

}  // namespace

Json StatsEvent(const RunReport& r) {
  const EngineCounters& c = r.total;
  Json event;
  event["event"] = "stats";
  event["prompt_tokens"] = r.result.prompt_tokens;
  event["new_tokens"] = r.result.tokens.size();
  event["finish_reason"] = ToString(r.result.reason);
  event["seconds_load"] = r.seconds_load;
  event["seconds_first_token"] = r.result.seconds_first_token;
  event["seconds_total"] = r.result.seconds_total;
  event["tokens_per_second_steady"] = r.result.tokens_per_second_steady();
  event["tokens_per_second_inclusive"] = r.result.tokens_per_second_inclusive();
  event["layer_passes"] = c.layer_passes;
  event["experts_distinct"] = c.experts_distinct;
  event["record_bytes"] = c.record_bytes;
  event["expert_bytes_demand"] = c.expert_bytes_demand;
  event["expert_bytes_prefetch_useful"] = 0;  // there is no prefetch: nothing is read that was not asked for
  event["expert_bytes_prefetch_wasted"] = 0;
  event["dense_bytes_read"] = c.dense_bytes_loaded + c.dense_bytes_streamed;
  event["dense_bytes_loaded"] = c.dense_bytes_loaded;
  event["bytes_per_token_decoding"] = BytesPerToken(r.result);
  event["cache_hits"] = c.cache_hits;
  event["cache_misses"] = c.cache_misses;
  event["seconds_expert_wait"] = c.expert_wait_seconds;
  event["seconds_dense_wait"] = c.dense_wait_seconds;
  event["peak_rss_bytes"] = PeakResidentBytes();
  if (r.sampled) event["seed"] = r.seed;
  event["engine"] = r.engine;
  Json drive;
  drive["name"] = r.model_folder;
  drive["bytes"] = c.io.device_bytes;
  drive["seconds_busy"] = c.io.busy_seconds;
  event["drives"] = Json::array({drive});
  return event;
}

std::string StatsText(const RunReport& r) {
  const GenerationResult& g = r.result;
  const EngineCounters& c = g.used;
  char speed[160];
  std::snprintf(speed, sizeof speed, "%.2f tokens/s steady, %.2f with the prompt; first token after %s\n",
                g.tokens_per_second_steady(), g.tokens_per_second_inclusive(),
                FormatSeconds(g.seconds_first_token).c_str());
  std::string text = Cat(g.prompt_tokens, " prompt tokens, ", g.tokens.size(), " new (", ToString(g.reason),
                         "), loaded in ", FormatSeconds(r.seconds_load), "\n", speed);
  text += Cat("experts: ", c.cache_hits, " of ", c.cache_hits + c.cache_misses, " from memory, ",
              FormatBytes(c.expert_bytes_demand), " read, waited ", FormatSeconds(c.expert_wait_seconds), "\n");
  if (c.dense_bytes_streamed != 0)
    text += Cat("dense weights streamed: ", FormatBytes(c.dense_bytes_streamed), ", waited ",
                FormatSeconds(c.dense_wait_seconds), "\n");
  const double rate = c.io.busy_seconds > 0 ? static_cast<double>(c.io.device_bytes) / c.io.busy_seconds : 0;
  text += Cat("drive: ", FormatBytes(c.io.device_bytes), " at ", FormatRate(rate), " while busy; ",
              FormatBytes(static_cast<uint64_t>(BytesPerToken(g))), " a token after the first\n");
  text += Cat("memory: ", FormatBytes(PeakResidentBytes()), " at most; ", r.engine, "\n");
  if (r.sampled) text += Cat("seed: ", r.seed, "\n");
  return text;
}

}  // namespace deltafin
