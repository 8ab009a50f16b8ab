#include "bench/draft_bench.h"

#include "draft/draft_economics.h"
#include "engine/generation.h"

namespace deltafin {
namespace {

void AddTo(DraftReport& sum, const DraftReport& more) {
  for (size_t rows = 0; rows < sum.by_rows.size(); ++rows) sum.by_rows[rows].Add(more.by_rows[rows]);
  if (sum.drafters.empty()) {
    sum.drafters = more.drafters;
  } else {
    for (size_t d = 0; d < sum.drafters.size(); ++d) sum.drafters[d].Add(more.drafters[d]);
  }
  sum.state = more.state;
  if (sum.given_up.empty()) sum.given_up = more.given_up;
}

class DraftBench {
 public:
  DraftBench(Engine& engine, EngineMonitor& monitor, const DraftBenchOptions& options)
      : engine_(engine), monitor_(monitor), options_(options) {}

  Result<std::vector<DraftBenchRow>> Run() {
    for (const DraftBenchTexts& texts : options_.texts) {
      expected_.assign(texts.prompts.size(), {});
      DFIN_TRY_VOID(Measure(texts, "", DraftBenchRow::kPlain));
      for (const std::string& drafter : Drafters()) {
        for (const int64_t drafts : options_.widths) DFIN_TRY_VOID(Measure(texts, drafter, drafts));
        DFIN_TRY_VOID(Measure(texts, drafter, DraftBenchRow::kAuto));
      }
      DFIN_TRY_VOID(Measure(texts, "auto", DraftBenchRow::kAuto));
    }
    return std::move(rows_);
  }

 private:
  std::vector<std::string> Drafters() const {
    std::vector<std::string> out = {"ngram"};
    const std::optional<DraftKind> kind = engine_.draft_kind();
    if (kind == DraftKind::kDspark) out.push_back("dspark");
    if (kind == DraftKind::kQwen && options_.bridge != nullptr) out.push_back("qwen");
    return out;
  }

  Result<std::unique_ptr<Drafting>> MakeDrafting(const std::string& drafter, int64_t drafts) {
    DraftingSetup setup{.stop_tokens = options_.stop_tokens,
                        .first_special = options_.first_special,
                        .usable_vocab = options_.usable_vocab};
    setup.ngram = drafter == "ngram" || drafter == "auto";
    setup.draft_model = drafter == "dspark" || drafter == "qwen" || drafter == "auto";
    setup.bridge = options_.bridge;
    const int64_t most = engine_.plan().draft_rows - 1;
    setup.limits = {.most = drafts == DraftBenchRow::kAuto ? most : drafts, .always = drafts > 0};
    return Drafting::ForPlan(engine_, std::move(setup));
  }

  Status Measure(const DraftBenchTexts& texts, const std::string& drafter, int64_t drafts) {
    if (options_.progress) options_.progress(Cat(texts.kind, ", ", drafter.empty() ? "plain" : drafter, " ", drafts));
    DFIN_TRY_VOID(engine_.ForgetExperts());
    const EngineCounters before = engine_.counters();
    DFIN_TRY(const std::unique_ptr<Drafting> drafting, MakeDrafting(drafter, drafts));
    DraftBenchRow row;
    row.kind = texts.kind;
    row.drafter = drafter;
    row.drafts = drafts;
    for (size_t i = 0; i < texts.prompts.size(); ++i) {
      DFIN_TRY(Session session, engine_.NewSession());
      GenerationRequest request;
      request.prompt = texts.prompts[i];
      request.max_new = options_.new_tokens;
      request.usable_vocab = options_.usable_vocab;
      if (texts.ends) request.stop_tokens = options_.stop_tokens;
      request.cancel = options_.cancel;
      request.drafting = drafting.get();
      DFIN_TRY(const GenerationResult result, Generate(engine_, session, monitor_, request));
      if (result.reason == StopReason::kCancelled) return Fail(ErrorCode::kCancelled, "bench draft: stopped");
      if (expected_[i].empty()) expected_[i] = result.tokens;
      if (expected_[i] != result.tokens)
        return Fail(ErrorCode::kInternal, "bench draft: ", texts.kind, " prompt ", i, " with ", drafter, " and ",
                    drafts, " drafts: expected the tokens of plain decoding, got others");
      AddTo(row.report, *result.drafts);
    }
    row.tokens = row.report.all().tokens;
    row.used = engine_.counters().Since(before);
    if (row.tokens == 0)
      return Fail(ErrorCode::kInvalidArgument, "bench draft: ", texts.kind,
                  ": answers of one token: expected --new of at least 2");
    rows_.push_back(std::move(row));
    return {};
  }

  Engine& engine_;
  EngineMonitor& monitor_;
  const DraftBenchOptions& options_;
  std::vector<std::vector<TokenId>> expected_;  // of the kind in progress
  std::vector<DraftBenchRow> rows_;
};

}  // namespace

double DraftBenchRow::seconds_drafting() const {
  double sum = 0;
  for (const DraftReport::OfDrafter& d : report.drafters) sum += d.seconds + d.seconds_observing;
  return sum;
}

double DraftBenchRow::bytes_per_token() const {
  return static_cast<double>(report.all().payload_bytes) / static_cast<double>(tokens);
}

double DraftBenchRow::tokens_per_step() const {
  return static_cast<double>(tokens) / static_cast<double>(report.all().steps);
}

double DraftBenchRow::UsualCost(int64_t rows) {
  const StepCosts nothing_measured;
  return nothing_measured.Ratio(rows);
}

double DraftBenchRow::break_even(const DraftBenchRow& plain) const {
  return seconds() / static_cast<double>(report.all().steps) / plain.seconds_per_token();
}

double DraftBenchRow::usual_break_even() const {
  double plain_steps = 0;
  for (size_t rows = 1; rows < report.by_rows.size(); ++rows)
    plain_steps += static_cast<double>(report.by_rows[rows].steps) * UsualCost(static_cast<int64_t>(rows));
  return plain_steps / static_cast<double>(report.all().steps);
}

Result<std::vector<DraftBenchRow>> BenchDrafts(Engine& engine, EngineMonitor& monitor,
                                               const DraftBenchOptions& options) {
  if (engine.plan().draft_rows == 0)
    return Fail(ErrorCode::kOutOfMemory, "bench draft: expected room for drafting, got none: give more memory");
  for (const int64_t drafts : options.widths)
    if (drafts < 1 || drafts >= engine.plan().draft_rows)
      return Fail(ErrorCode::kInvalidArgument, "bench draft: ", drafts, " drafts: expected 1 to ",
                  engine.plan().draft_rows - 1, ", for which there is room");
  return DraftBench(engine, monitor, options).Run();
}

}  // namespace deltafin
