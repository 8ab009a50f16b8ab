#include "bench/decode_bench.h"

#include <ctime>
#include <random>
#include <vector>

#include "bench/median.h"
#include "bench/token_work.h"
#include "engine/generation.h"

namespace deltafin {
namespace {

constexpr double kLimitSeconds = 0.25;
// Rounds that are not counted end when one finds all its experts in memory, at the latest with this one.
constexpr int kMostWarmUps = 4;

// One round's own figures.
struct Round {
  double memory = 0, multiply = 0;  // limits
  double seconds_prompt = 0, device_bytes_prompt = 0;
  double seconds_token = 0, seconds_processor = 0, bytes_touched = 0, device_bytes = 0, seconds_wait = 0,
         seconds_outside = 0;
  uint64_t misses = 0;  // experts that were not in memory
  std::array<double, kTimedOperations> operation_seconds = {};  // a token
};

class DecodeBench {
 public:
  DecodeBench(Engine& engine, EngineMonitor& monitor, MachineLimits& limits, const BackendTimes& times,
              const DecodeBenchOptions& options)
      : engine_(engine),
        monitor_(monitor),
        limits_(limits),
        times_(times),
        options_(options),
        work_(WorkOfToken(engine.spec(), engine.packed_dense_bytes())) {}

  Result<DecodeBenchReport> Run() {
    uint64_t number = 0;  // other ids in every round
    if (options_.progress) options_.progress("warming up");
    for (int i = 0; i < kMostWarmUps; ++i) {
      DFIN_TRY(const Round figures, RunRound(number++));
      if (figures.misses == 0) break;
    }
    for (int round = 1; round <= options_.rounds; ++round) {
      if (options_.progress) options_.progress(Cat("round ", round, " of ", options_.rounds));
      DFIN_TRY(const Round figures, RunRound(number++));
      rounds_.push_back(figures);
    }
    return Report();
  }

 private:
  // When decoding began.
  struct Start {
    BackendTimes times;
    std::clock_t clock = 0;  // processor time of all threads
  };

  Result<Round> RunRound(uint64_t number) {
    Round round;
    round.memory = limits_.ReadBytesPerSecond(kLimitSeconds);
    round.multiply = limits_.FlopsPerSecond(kLimitSeconds);
    DFIN_TRY(Session session, engine_.NewSession());
    const std::vector<TokenId> prompt = MakePrompt(number);
    Start start;
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = options_.new_tokens + 1;  // the first one comes from the prompt
    request.cancel = options_.cancel;
    int64_t seen = 0;
    request.on_token = [&](TokenId) {
      if (seen++ == 0) start = {times_, std::clock()};
      return true;
    };
    DFIN_TRY(const GenerationResult result, Generate(engine_, session, monitor_, request));
    if (result.reason == StopReason::kCancelled) return Fail(ErrorCode::kCancelled, "bench decode: stopped");
    FillIn(result, start, round);
    return round;
  }

  // Spread over the vocabulary, without the special ids at its end.
  std::vector<TokenId> MakePrompt(uint64_t round) const {
    std::mt19937_64 random(round + 1);
    const auto ordinary = static_cast<uint64_t>(engine_.spec().vocab_size * 3 / 4);
    std::vector<TokenId> ids(static_cast<size_t>(options_.prompt_tokens));
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % ordinary);
    return ids;
  }

  void FillIn(const GenerationResult& result, const Start& start, Round& round) const {
    const EngineCounters& d = result.used_decoding;
    const auto tokens = static_cast<double>(result.tokens.size() - 1);
    const auto layers = static_cast<double>(engine_.spec().layers.size());
    const double seconds = result.seconds_total - result.seconds_first_token;
    const double wait = d.expert_wait_seconds + d.dense_wait_seconds;
    const double computing = static_cast<double>(times_.total() - start.times.total()) * 1e-9;
    for (size_t i = 0; i < kTimedOperations; ++i)
      round.operation_seconds[i] =
          static_cast<double>(times_.nanoseconds[i] - start.times.nanoseconds[i]) * 1e-9 / tokens;
    round.misses = result.used.cache_misses;
    round.seconds_prompt = result.seconds_first_token;
    round.device_bytes_prompt = static_cast<double>(result.used.io.device_bytes - d.io.device_bytes);
    round.seconds_token = seconds / tokens;
    round.bytes_touched =
        work_.dense_bytes + static_cast<double>(d.experts_distinct) * static_cast<double>(d.record_bytes) / tokens;
    round.device_bytes = static_cast<double>(d.io.device_bytes) / tokens;
    round.seconds_wait = wait / tokens;
    round.seconds_processor = static_cast<double>(std::clock() - start.clock) / CLOCKS_PER_SEC / tokens;
    round.seconds_outside = (seconds - wait - computing) / tokens / layers;
  }

  // Of a prompt only the last row has logits.
  double PromptFlops() const {
    const auto rows = static_cast<double>(options_.prompt_tokens);
    return 2 * (rows * (work_.dense_macs + work_.expert_macs) + work_.head_macs);
  }

  template <typename Figure>
  double MedianOf(Figure figure) const {
    std::vector<double> values;
    for (const Round& round : rounds_) values.push_back(figure(round));
    return Median(std::move(values));
  }

  DecodeBenchReport Report() {
    DecodeBenchReport r;
    r.engine = engine_.Describe();
    r.prompt_tokens = options_.prompt_tokens;
    r.new_tokens = options_.new_tokens;
    r.rounds = options_.rounds;
    r.macs_per_token = work_.macs();
    r.latent_bytes_per_token = static_cast<double>(
        SequenceState::MlaBytes(engine_.spec(), options_.prompt_tokens + options_.new_tokens / 2));
    const auto rate = [](const Round& round) { return round.bytes_touched / round.seconds_token; };
    const auto flops = [this](const Round& round) { return PromptFlops() / round.seconds_prompt; };
    r.seconds_per_token = MedianOf([](const Round& round) { return round.seconds_token; });
    r.bytes_touched_per_token = MedianOf([](const Round& round) { return round.bytes_touched; });
    r.bytes_per_second = MedianOf(rate);
    r.memory_ceiling = MedianOf([](const Round& round) { return round.memory; });
    r.decode_ratio = MedianOf([&](const Round& round) { return rate(round) / round.memory; });
    r.device_bytes_per_token = MedianOf([](const Round& round) { return round.device_bytes; });
    r.seconds_wait_per_token = MedianOf([](const Round& round) { return round.seconds_wait; });
    r.seconds_outside_per_layer = MedianOf([](const Round& round) { return round.seconds_outside; });
    r.processor_seconds_per_token = MedianOf([](const Round& round) { return round.seconds_processor; });
    for (size_t i = 0; i < kTimedOperations; ++i)
      r.operation_seconds[i] = MedianOf([i](const Round& round) { return round.operation_seconds[i]; });
    r.seconds_prompt = MedianOf([](const Round& round) { return round.seconds_prompt; });
    r.flops_per_second = MedianOf(flops);
    r.multiply_peak = MedianOf([](const Round& round) { return round.multiply; });
    r.prompt_ratio = MedianOf([&](const Round& round) { return flops(round) / round.multiply; });
    r.device_bytes_prompt = MedianOf([](const Round& round) { return round.device_bytes_prompt; });
    r.seconds_fork_join = limits_.ForkJoinSeconds();
    r.seconds_fork_join_asleep = limits_.ForkJoinAsleepSeconds();
    return r;
  }

  Engine& engine_;
  EngineMonitor& monitor_;
  MachineLimits& limits_;
  const BackendTimes& times_;
  const DecodeBenchOptions& options_;
  const TokenWork work_;
  std::vector<Round> rounds_;
};

}  // namespace

Result<DecodeBenchReport> BenchDecode(Engine& engine, EngineMonitor& monitor, MachineLimits& limits,
                                      const BackendTimes& times, const DecodeBenchOptions& options) {
  if (options.prompt_tokens < 1 || options.new_tokens < 1 || options.rounds < 1)
    return Fail(ErrorCode::kInvalidArgument, "bench decode: expected at least one prompt token, new token and round");
  return DecodeBench(engine, monitor, limits, times, options).Run();
}

}  // namespace deltafin
