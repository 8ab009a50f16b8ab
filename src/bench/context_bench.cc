#include "bench/context_bench.h"

#include <algorithm>
#include <functional>
#include <random>

#include "bench/median.h"
#include "engine/generation.h"

namespace deltafin {
namespace {

constexpr double kLimitSeconds = 0.25;

class ContextBench {
 public:
  ContextBench(Engine& engine, EngineMonitor& monitor, MachineLimits& limits, const BackendTimes& times,
               const ContextBenchOptions& options)
      : engine_(engine), monitor_(monitor), limits_(limits), times_(times), options_(options) {}

  Result<ContextBenchReport> Run() {
    DFIN_TRY_VOID(ReadConversations());
    for (int round = 0; round <= options_.rounds; ++round) {
      if (options_.progress)
        options_.progress(round == 0 ? std::string("warming up") : Cat("round ", round, " of ", options_.rounds));
      DFIN_TRY(Round figures, RunRound(round % 2 == 1));
      if (round > 0) rounds_.push_back(std::move(figures));
    }
    return Report();
  }

 private:
  struct Figure {
    double seconds = 0, attention = 0;  // a token
  };
  struct Round {
    double memory = 0;            // bytes a second
    std::vector<Figure> figures;  // one a length
  };

  // The same sequence, kept where it has each of the lengths.
  Status ReadConversations() {
    std::mt19937_64 random(1);
    const auto ordinary = static_cast<uint64_t>(engine_.spec().vocab_size * 3 / 4);
    DFIN_TRY(Session session, engine_.NewSession());
    for (const int64_t length : options_.lengths) {
      if (options_.progress) options_.progress(Cat("reading ", length, " tokens"));
      std::vector<TokenId> more(static_cast<size_t>(length - session.length()));
      for (TokenId& id : more) id = static_cast<TokenId>(random() % ordinary);
      GenerationRequest request;
      request.prompt = more;
      request.max_new = 1;
      request.cancel = options_.cancel;
      DFIN_TRY_VOID(Finished(Generate(engine_, session, monitor_, request)));
      DFIN_TRY(Session kept, session.Fork());
      conversations_.push_back(std::move(kept));
    }
    return {};
  }

  static Result<GenerationResult> Finished(Result<GenerationResult> result) {
    if (result && result->reason == StopReason::kCancelled)
      return Fail(ErrorCode::kCancelled, "bench context: stopped");
    return result;
  }

  Result<Round> RunRound(bool backwards) {
    Round round;
    round.memory = limits_.ReadBytesPerSecond(kLimitSeconds);
    round.figures.resize(conversations_.size());
    for (size_t n = 0; n < conversations_.size(); ++n) {
      const size_t i = backwards ? conversations_.size() - 1 - n : n;
      DFIN_TRY(Session session, conversations_[i].Fork());
      const std::vector<TokenId> next = {0};
      BackendTimes start;
      GenerationRequest request;
      request.prompt = next;
      request.max_new = options_.new_tokens + 1;  // the first one comes from the prompt
      request.cancel = options_.cancel;
      int64_t seen = 0;
      request.on_token = [&](TokenId) {
        if (seen++ == 0) start = times_;
        return true;
      };
      DFIN_TRY(const GenerationResult result, Finished(Generate(engine_, session, monitor_, request)));
      const auto tokens = static_cast<double>(result.tokens.size() - 1);
      const auto attention = static_cast<size_t>(TimedOperation::kMlaAttend);
      round.figures[i] = {
          (result.seconds_total - result.seconds_first_token) / tokens,
          static_cast<double>(times_.nanoseconds[attention] - start.nanoseconds[attention]) * 1e-9 / tokens};
    }
    return round;
  }

  template <typename Value>
  double MedianOf(Value value) const {
    std::vector<double> values;
    for (const Round& round : rounds_) values.push_back(value(round));
    return Median(std::move(values));
  }

  ContextBenchReport Report() const {
    ContextBenchReport report{.engine = engine_.Describe(),
                              .new_tokens = options_.new_tokens,
                              .rounds = options_.rounds,
                              .memory_ceiling = MedianOf([](const Round& r) { return r.memory; }),
                              .rows = {}};
    for (size_t i = 0; i < conversations_.size(); ++i) {
      ContextBenchRow row;
      row.length = options_.lengths[i];
      row.latent_bytes =
          static_cast<double>(SequenceState::MlaBytes(engine_.spec(), row.length + options_.new_tokens / 2));
      row.seconds_per_token = MedianOf([i](const Round& r) { return r.figures[i].seconds; });
      row.attention_seconds = MedianOf([i](const Round& r) { return r.figures[i].attention; });
      row.latent_seconds = MedianOf([&](const Round& r) { return row.latent_bytes / r.memory; });
      row.over_first = i == 0 ? 1 : MedianOf([&](const Round& r) {
        return (r.figures[i].seconds - row.latent_bytes / r.memory) / r.figures[0].seconds;
      });
      row.least = row.most = rounds_.front().figures[i].seconds;
      for (const Round& r : rounds_) {
        row.least = std::min(row.least, r.figures[i].seconds);
        row.most = std::max(row.most, r.figures[i].seconds);
      }
      report.rows.push_back(row);
    }
    return report;
  }

  Engine& engine_;
  EngineMonitor& monitor_;
  MachineLimits& limits_;
  const BackendTimes& times_;
  const ContextBenchOptions& options_;
  std::vector<Session> conversations_;
  std::vector<Round> rounds_;
};

}  // namespace

Status CheckContextBench(const ContextBenchOptions& options) {
  const std::vector<int64_t>& lengths = options.lengths;
  const bool ascending = std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) == lengths.end();
  if (lengths.empty() || lengths.front() < 1 || !ascending)
    return Fail(ErrorCode::kInvalidArgument,
                "bench context: lengths: expected numbers of at least 1, each larger than the one before it");
  if (options.new_tokens < 1 || options.rounds < 1)
    return Fail(ErrorCode::kInvalidArgument, "bench context: expected at least one new token and round");
  return {};
}

Result<ContextBenchReport> BenchContext(Engine& engine, EngineMonitor& monitor, MachineLimits& limits,
                                        const BackendTimes& times, const ContextBenchOptions& options) {
  DFIN_TRY_VOID(CheckContextBench(options));
  return ContextBench(engine, monitor, limits, times, options).Run();
}

}  // namespace deltafin
