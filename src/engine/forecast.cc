#include "engine/forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bytes.h"
#include "base/units.h"

namespace deltafin {
namespace {

// Distinct experts of a layer that `rows` tokens choose, if all choices are equally likely and independent.
double Distinct(const ForecastFacts& f, int64_t rows) {
  const auto experts = static_cast<double>(f.experts);
  const double left_out = 1 - static_cast<double>(f.experts_per_token) / experts;
  return experts * (1 - std::pow(left_out, static_cast<double>(rows)));
}

double Seconds(const ForecastFacts& f, const PromptForecast& forecast) {
  const bool all_measured = !f.expert_rates.empty() &&
                            std::all_of(f.expert_rates.begin(), f.expert_rates.end(), [](double r) { return r > 0; });
  if (!all_measured || (forecast.dense_bytes > 0 && f.dense_rate <= 0)) return 0;
  const double experts =
      static_cast<double>(forecast.expert_bytes) / std::accumulate(f.expert_rates.begin(), f.expert_rates.end(), 0.0);
  if (forecast.dense_bytes == 0) return experts;
  const double dense = static_cast<double>(forecast.dense_bytes) / f.dense_rate;
  return f.dense_apart ? std::max(experts, dense) : experts + dense;
}

}  // namespace

PromptForecast ForecastPrompt(const ForecastFacts& f, int64_t tokens) {
  PromptForecast forecast;
  forecast.tokens = tokens;
  const int64_t all = f.moe_layers * f.experts;
  // Of what a step wants, the part that is in memory: now, and after a step over all layers has filled the slots.
  const auto part = [&](int64_t held) {
    return all == 0 ? 0 : static_cast<double>(std::min(held, all)) / static_cast<double>(all);
  };
  double reads = 0;
  for (int64_t done = 0; done < tokens; done += f.chunk) {
    const double held = forecast.chunks == 0 ? part(f.resident) : part(std::max(f.resident, f.slots));
    reads += static_cast<double>(f.moe_layers) * Distinct(f, std::min(f.chunk, tokens - done)) * (1 - held);
    ++forecast.chunks;
  }
  // Where everything fits, nothing is read twice.
  if (f.slots >= all) reads = std::min(reads, static_cast<double>(all - std::min(f.resident, all)));
  forecast.expert_bytes = static_cast<uint64_t>(std::ceil(reads)) * f.record_bytes;
  const double absent = all == 0 ? 0 : static_cast<double>(f.absent) / static_cast<double>(all);
  forecast.network_bytes = std::min(static_cast<uint64_t>(std::ceil(reads * absent)), f.absent) * f.record_bytes;
  forecast.dense_bytes = static_cast<uint64_t>(forecast.chunks) * f.streamed_dense_bytes;
  forecast.seconds = Seconds(f, forecast);
  return forecast;
}

std::string Describe(const PromptForecast& f) {
  std::string text =
      Cat("prompt of ", f.tokens, f.tokens == 1 ? " token" : " tokens", ": up to ", FormatBytes(f.bytes()),
          " to read in ", f.chunks == 1 ? "one pass" : Cat(f.chunks, " passes"), " over the model");
  if (f.network_bytes > 0)
    text += Cat("; up to ", FormatBytes(f.network_bytes), " of it must be fetched over the network first");
  if (f.seconds > 0)
    return text + ", " + FormatSeconds(f.seconds) + " at the drives' measured speed, and what the arithmetic takes";
  return text + "; how long that takes is known once `deltafin drives` has measured the drives";
}

}  // namespace deltafin
