#include "app/run_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/drafts_report.h"
#include "app/lookahead_report.h"
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

// Payload of all experts that were read for this request, asked for or not; what a warm start reads is for later ones.
uint64_t ExpertBytes(const EngineCounters& c) {
  return c.expert_bytes_demand + c.expert_bytes_prefetch_useful + c.expert_bytes_prefetch_wasted;
}

// "" when nothing came over the network.
std::string NetworkText(const FetchCounters& f) {
  if (f.experts == 0) return "";
  const double rate = f.seconds > 0 ? static_cast<double>(f.bytes) / f.seconds : 0;
  std::string text = Cat("network: ", f.experts, " experts fetched, ", FormatBytes(f.bytes), " in ",
                         FormatSeconds(f.seconds), " (", FormatRate(rate), ")");
  if (f.twice) text += ", each twice and compared";
  if (f.fetched_again > 0) text += Cat("; ", f.fetched_again, " of them again, since they were damaged on disk");
  return text + "\n";
}

// "read ahead 1.2 GB in use (300 MB late), 20 MB not"; "" when nothing was.
std::string PrefetchText(const EngineCounters& c) {
  if (c.expert_bytes_prefetch_useful + c.expert_bytes_prefetch_wasted == 0) return "";
  return Cat("read ahead: ", FormatBytes(c.expert_bytes_prefetch_useful), " was wanted (",
             FormatBytes(c.expert_bytes_prefetch_late), " came late), ", FormatBytes(c.expert_bytes_prefetch_wasted),
             " was not; the routers were guessed right ", c.lookahead_predicted, " times of ", c.lookahead_wanted,
             "\n");
}

// Payload read for a token after the first.
double BytesPerToken(const GenerationResult& g) {
  const EngineCounters& d = g.used_decoding;
  if (g.tokens.size() < 2) return 0;
  const uint64_t bytes = ExpertBytes(d) + d.dense_bytes_streamed;
  return static_cast<double>(bytes) / static_cast<double>(g.tokens.size() - 1);
}

const char* ToString(DriveHealth health) { return health == DriveHealth::kGood ? "good" : "degraded"; }

uint64_t DeviceBytes(const std::vector<DriveReport>& drives) {
  uint64_t bytes = 0;
  for (const DriveReport& drive : drives) bytes += drive.counters.device_bytes;
  return bytes;
}

double Share(const DriveCounters& c, uint64_t of_bytes) {
  return of_bytes > 0 ? static_cast<double>(c.device_bytes) / static_cast<double>(of_bytes) : 0;
}

Json DriveFigures(const DriveReport& drive, uint64_t of_bytes) {
  const DriveCounters& c = drive.counters;
  Json out;
  out["name"] = drive.info.name;
  out["bytes"] = c.device_bytes;
  out["share"] = Share(c, of_bytes);
  out["seconds_busy"] = c.busy_seconds;
  out["bytes_per_second"] = c.busy_rate();
  out["bytes_per_second_profile"] = drive.info.bytes_per_second;
  out["chunks"] = c.chunks;
  out["seconds_p50"] = c.latency.Quantile(0.5);
  out["seconds_p99"] = c.latency.Quantile(0.99);
  out["chunks_in_flight_mean"] = c.mean_in_flight();
  out["chunks_in_flight_most"] = c.most_in_flight;
  out["errors"] = c.errors;
  out["retries"] = c.retries;
  out["hung"] = c.hung;
  out["replica_bytes"] = c.replica_bytes;
  out["health"] = ToString(c.health);
  return out;
}

std::vector<DriveReport> SinceThen(std::vector<DriveReport> drives, const std::vector<DriveReport>& before) {
  for (size_t i = 0; i < before.size() && i < drives.size(); ++i)
    drives[i].counters = drives[i].counters.Since(before[i].counters);
  return drives;
}

// One line a drive that was read from.
std::string DriveLines(const std::vector<DriveReport>& drives) {
  const uint64_t all = DeviceBytes(drives);
  std::string text;
  for (const DriveReport& drive : drives) {
    const DriveCounters& c = drive.counters;
    if (c.device_bytes == 0 && c.errors == 0 && c.hung == 0) continue;
    char figures[200];
    std::snprintf(figures, sizeof figures,
                  ": %.1f %% of all bytes, %s while busy, %.1f reads in flight (%d at most), p50 %.1f ms, p99 %.1f ms",
                  100 * Share(c, all), FormatRate(c.busy_rate()).c_str(), c.mean_in_flight(), c.most_in_flight,
                  c.latency.Quantile(0.5) * 1e3, c.latency.Quantile(0.99) * 1e3);
    text += Cat("  ", drive.info.name, figures);
    if (c.errors != 0) text += Cat(", ", c.errors, " errors");
    if (c.hung != 0) text += Cat(", hung ", c.hung, " times");
    if (c.replica_bytes != 0) text += Cat(", ", FormatBytes(c.replica_bytes), " for other drives");
    if (c.health == DriveHealth::kDegraded) text += ", degraded";
    text += "\n";
  }
  return text;
}

// Where the time of the request went: waiting for experts, waiting for dense weights, computing.
std::string TimeLine(const GenerationResult& g) {
  if (g.seconds_total <= 0) return "";
  const double experts = 100 * g.used.expert_wait_seconds / g.seconds_total;
  const double dense = 100 * g.used.dense_wait_seconds / g.seconds_total;
  char text[120];
  std::snprintf(text, sizeof text, "time: experts %.0f %%, dense %.0f %%, computing %.0f %%\n", experts, dense,
                std::max(0.0, 100 - experts - dense));
  return text;
}

// What may have made a large cache slow: small pages, swap.
std::string MemoryText() {
  const MemoryUse use = MemoryUsed();
  std::string text;
  if (use.huge_pages != 0) text += Cat(", ", FormatBytes(use.huge_pages), " in huge pages now");
  if (use.swapped != 0) text += Cat(", ", FormatBytes(use.swapped), " swapped out: a smaller --memory would be faster");
  return text;
}

}  // namespace

std::vector<OperationTime> OperationTimes(const BackendTimes& begin, const BackendTimes& first,
                                          const BackendTimes& end) {
  std::vector<OperationTime> out;
  for (size_t i = 0; i < kTimedOperations; ++i)
    out.push_back({TimedOperationName(static_cast<TimedOperation>(i)),
                   static_cast<double>(first.nanoseconds[i] - begin.nanoseconds[i]) * 1e-9,
                   static_cast<double>(end.nanoseconds[i] - first.nanoseconds[i]) * 1e-9});
  return out;
}

Json StatsEvent(const RunReport& r) {
  const EngineCounters& c = r.total;
  Json event;
  event["event"] = "stats";
  event["prompt_tokens"] = r.result.prompt_tokens;
  event["prompt_tokens_read"] = r.result.prompt_tokens_read;
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
  event["expert_bytes_prefetch_useful"] = c.expert_bytes_prefetch_useful;
  event["expert_bytes_prefetch_late"] = c.expert_bytes_prefetch_late;
  event["expert_bytes_prefetch_wasted"] = c.expert_bytes_prefetch_wasted;
  event["expert_bytes_warm"] = c.expert_bytes_warm;
  event["lookahead_wanted"] = c.lookahead_wanted;
  event["lookahead_predicted"] = c.lookahead_predicted;
  event["lookahead"] = LookaheadFigures(r.lookahead, c.record_bytes);
  event["network_experts"] = c.fetch.experts;
  event["network_bytes"] = c.fetch.bytes;
  event["network_experts_again"] = c.fetch.fetched_again;
  event["seconds_network"] = c.fetch.seconds;
  event["dense_bytes_read"] = c.dense_bytes_loaded + c.dense_bytes_streamed;
  event["dense_bytes_loaded"] = c.dense_bytes_loaded;
  event["bytes_per_token_decoding"] = BytesPerToken(r.result);
  event["cache_hits"] = c.cache_hits;
  event["cache_misses"] = c.cache_misses;
  event["seconds_expert_wait"] = c.expert_wait_seconds;
  event["seconds_dense_wait"] = c.dense_wait_seconds;
  event["peak_rss_bytes"] = PeakResidentBytes();
  const MemoryUse memory = MemoryUsed();
  event["huge_page_bytes"] = memory.huge_pages;
  event["swapped_bytes"] = memory.swapped;
  if (r.sampled) event["seed"] = r.seed;
  if (r.result.drafts) event["drafts"] = DraftFigures(*r.result.drafts);
  for (const OperationTime& operation : r.operations)
    event["seconds_by_operation"][operation.name] = {{"prompt", operation.prompt}, {"decoding", operation.decoding}};
  event["engine"] = r.engine;
  event["seconds_reading"] = c.io.busy_seconds;
  event["reads_verified"] = c.reads_verified;
  event["reads_mismatched"] = c.reads_mismatched;
  Json drives = Json::array();
  for (const DriveReport& drive : r.drives) drives.push_back(DriveFigures(drive, DeviceBytes(r.drives)));
  event["drives"] = std::move(drives);
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
                         "), loaded in ", FormatSeconds(r.seconds_load), "\n", speed, TimeLine(g));
  text += Cat("experts: ", c.cache_hits, " of ", c.cache_hits + c.cache_misses, " from memory, ",
              FormatBytes(ExpertBytes(c)), " read, waited ", FormatSeconds(c.expert_wait_seconds), "\n");
  text += NetworkText(c.fetch);
  if (g.drafts) text += DraftText(*g.drafts);
  text += PrefetchText(c);
  text += LookaheadTable(SinceThen(r.lookahead, r.lookahead_before), c.record_bytes);
  if (c.expert_bytes_warm != 0)
    text += Cat("warm start: ", FormatBytes(c.expert_bytes_warm), " read in the background\n");
  if (c.dense_bytes_streamed != 0)
    text += Cat("dense weights streamed: ", FormatBytes(c.dense_bytes_streamed), ", waited ",
                FormatSeconds(c.dense_wait_seconds), "\n");
  const double rate = c.io.busy_seconds > 0 ? static_cast<double>(c.io.device_bytes) / c.io.busy_seconds : 0;
  text += Cat("drives: ", FormatBytes(c.io.device_bytes), " at ", FormatRate(rate), " while busy; ",
              FormatBytes(static_cast<uint64_t>(BytesPerToken(g))), " a token after the first\n");
  text += DriveLines(SinceThen(r.drives, r.drives_before));
  if (c.fetch.streamed)
    text += Cat("checksums: ", c.reads_verified, " experts read as they were fetched, ", c.reads_mismatched,
                " read again; the hub lists none for single experts\n");
  else if (c.reads_verified + c.reads_mismatched != 0)
    text += Cat("checksums: ", c.reads_verified, " experts right, ", c.reads_mismatched, " read again\n");
  text += Cat("memory: ", FormatBytes(PeakResidentBytes()), " at most", MemoryText(), "; ", r.engine, "\n");
  if (r.sampled) text += Cat("seed: ", r.seed, "\n");
  return text;
}

}  // namespace deltafin
