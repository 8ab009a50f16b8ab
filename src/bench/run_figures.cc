#include "bench/run_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/result.h"
#include "base/units.h"

namespace deltafin {
namespace {

// What others may do without being named.
constexpr double kOtherShare = 0.05, kStolenShare = 0.02, kIdleLoad = 0.5;
// Of a run: headers, index and tokenizer are read through the page cache, read ahead, and not counted by the program.
constexpr double kBytesRatio = 0.05, kBytesSlack = 16e6;

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

template <typename Figure>
double MedianOf(const std::vector<const BenchRun*>& runs, Figure figure) {
  std::vector<double> values;
  for (const BenchRun* run : runs) values.push_back(figure(*run));
  return SpreadOf(std::move(values)).median;
}

double KernelBytes(const BenchRun& run) {
  double sum = 0;
  for (const uint64_t bytes : run.kernel_bytes) sum += static_cast<double>(bytes);
  return sum;
}

std::vector<TimePart> MedianTimes(const std::vector<const BenchRun*>& runs) {
  std::vector<TimePart> out;
  for (size_t i = 0; i < runs.front()->time.size(); ++i) {
    const auto part = [i](const BenchRun& run) { return i < run.time.size() ? run.time[i] : TimePart{}; };
    out.push_back({runs.front()->time[i].name, MedianOf(runs, [&](const BenchRun& run) { return part(run).prompt; }),
                   MedianOf(runs, [&](const BenchRun& run) { return part(run).decoding; })});
  }
  return out;
}

CaseFigures FiguresOfRuns(const std::vector<const BenchRun*>& runs) {
  CaseFigures out;
  const BenchRun& first = *runs.front();
  out.arm = first.arm;
  out.prompt = first.prompt;
  out.new_tokens = first.new_tokens;
  out.prompt_tokens = first.prompt_tokens;
  out.ids_sha256 = first.ids_sha256;
  out.text_sha256 = first.text_sha256;
  bool kernel = true;
  for (const BenchRun* run : runs) {
    out.rounds.push_back(run->round);
    if (run->steady() > 0) out.steady.values.push_back(run->steady());
    out.inclusive.values.push_back(run->inclusive());
    out.with_load.values.push_back(run->inclusive_with_load());
    out.first_token.values.push_back(run->seconds_first_token);
    out.drafted += run->drafted;
    out.drafted_right += run->drafted_right;
    out.peak_rss_bytes = std::max(out.peak_rss_bytes, run->peak_rss_bytes);
    kernel = kernel && !run->kernel_bytes.empty();
  }
  if (out.steady.values.size() != runs.size()) out.steady.values.clear();
  out.seconds_load = MedianOf(runs, [](const BenchRun& run) { return run.seconds_load; });
  out.own_bytes = MedianOf(runs, [](const BenchRun& run) { return static_cast<double>(run.own_bytes); });
  out.payload_bytes = MedianOf(runs, [](const BenchRun& run) { return static_cast<double>(run.payload_bytes); });
  if (kernel) {
    out.kernel_bytes = MedianOf(runs, KernelBytes);
    if (out.own_bytes > 0)
      out.kernel_over_own = MedianOf(runs, [](const BenchRun& run) {
        return KernelBytes(run) / std::max(1.0, static_cast<double>(run.own_bytes));
      });
  }
  out.time = MedianTimes(runs);
  return out;
}

void WarnOfOthers(const BenchResult& result, std::vector<std::string>* out) {
  double wall = 0, others = 0, stolen = 0;
  for (const BenchRun& run : result.runs) {
    if (!run.other_processor_seconds || !run.stolen_seconds) continue;
    wall += run.seconds_process;
    others += *run.other_processor_seconds;
    stolen += *run.stolen_seconds;
  }
  const double all = wall * std::max(1, result.machine.processors);
  if (all > 0 && others / all > kOtherShare)
    out->push_back(Cat("other programs used ", Percent(others / all), " of the processors while it ran"));
  if (all > 0 && stolen / all > kStolenShare)
    out->push_back(Cat("the host gave ", Percent(stolen / all), " of the processors' time to others"));
  if (result.load_average_start && *result.load_average_start > kIdleLoad) {
    char text[80];
    std::snprintf(text, sizeof text, "the load average was %.1f at the start: something else was running",
                  *result.load_average_start);
    out->push_back(text);
  }
}

void WarnOfBytes(const BenchResult& result, std::vector<std::string>* out) {
  double own = 0, kernel = 0, slack = 0;
  for (const BenchRun& run : result.runs) {
    if (run.kernel_bytes.empty()) continue;
    own += static_cast<double>(run.own_bytes);
    kernel += KernelBytes(run);
    slack += kBytesSlack;
  }
  const double difference = kernel - own;
  if (std::abs(difference) <= slack + kBytesRatio * own) return;
  const std::string figures = Cat("the kernel counted ", FormatBytes(static_cast<uint64_t>(kernel)),
                                  " from the drives, the program ", FormatBytes(static_cast<uint64_t>(own)));
  out->push_back(difference > 0 ? figures + ": something else was reading from them"
                                : figures + ": some of it came from memory, not from a drive");
}

}  // namespace

std::vector<CaseFigures> FiguresOf(const BenchResult& result) {
  std::vector<CaseFigures> out;
  if (result.state == BenchState::kVoided) return out;
  for (const BenchArm& arm : result.arms)
    for (const BenchPrompt& prompt : result.prompts)
      for (const int64_t length : prompt.lengths) {
        std::vector<const BenchRun*> runs;
        for (const BenchRun& run : result.runs)
          if (run.round > 0 && run.arm == arm.name && run.prompt == prompt.name && run.new_tokens == length)
            runs.push_back(&run);
        if (!runs.empty()) out.push_back(FiguresOfRuns(runs));
      }
  return out;
}

const BenchRun* MiddleRun(const BenchResult& result, const CaseFigures& figures) {
  const double median = figures.inclusive.spread().median;
  const BenchRun* best = nullptr;
  for (const BenchRun& run : result.runs) {
    if (run.round == 0 || run.arm != figures.arm || run.prompt != figures.prompt ||
        run.new_tokens != figures.new_tokens)
      continue;
    if (best == nullptr || std::abs(run.inclusive() - median) < std::abs(best->inclusive() - median)) best = &run;
  }
  return best;
}

std::vector<std::string> WarningsOf(const BenchResult& result) {
  std::vector<std::string> out;
  WarnOfOthers(result, &out);
  WarnOfBytes(result, &out);
  if (result.arms.size() > 1 && result.rounds % static_cast<int>(result.arms.size()) != 0)
    out.push_back(Cat("the order of the arms is not balanced: expected a multiple of ", result.arms.size(),
                      " rounds, got ", result.rounds));
  if (!result.machine.governor.empty() && result.machine.governor != "performance")
    out.push_back(Cat("the processors' governor is ", result.machine.governor, ", not performance"));
  if (result.rounds < 3) out.push_back("fewer than three rounds say nothing of what another run would give");
  return out;
}

}  // namespace deltafin
