#include "bench/bench_result.h"

#include "base/digest.h"
#include "base/result.h"

namespace deltafin {

double BenchRun::steady() const {
  const double seconds = seconds_total - seconds_first_token;
  return ids.size() < 2 || seconds <= 0 ? 0 : static_cast<double>(ids.size() - 1) / seconds;
}

double BenchRun::inclusive() const { return seconds_total <= 0 ? 0 : static_cast<double>(ids.size()) / seconds_total; }

double BenchRun::inclusive_with_load() const {
  return seconds_total <= 0 ? 0 : static_cast<double>(ids.size()) / (seconds_load + seconds_total);
}

std::string IdsSha256(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (!text.empty()) text += ',';
    text += std::to_string(id);
  }
  return Sha256Hex(text);
}

std::string CaseName(const std::string& prompt, int64_t new_tokens) { return Cat(prompt, "-", new_tokens); }

const char* ToString(BenchState state) {
  switch (state) {
    case BenchState::kComplete:
      return "complete";
    case BenchState::kPartial:
      return "partial";
    case BenchState::kVoided:
      return "voided";
  }
  return "";
}

}  // namespace deltafin
