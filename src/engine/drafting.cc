#include "engine/drafting.h"

#include <algorithm>

#include "draft/ngram_drafter.h"

namespace deltafin {

uint64_t DraftReport::OfDrafter::tried() const {
  uint64_t sum = 0;
  for (const uint64_t n : tried_at) sum += n;
  return sum;
}

void DraftReport::OfDrafter::Add(const OfDrafter& more) {
  proposals += more.proposals;
  seconds += more.seconds;
  seconds_observing += more.seconds_observing;
  for (size_t j = 0; j < tried_at.size(); ++j) {
    tried_at[j] += more.tried_at[j];
    right_at[j] += more.right_at[j];
  }
  if (failure.empty()) failure = more.failure;
  if (silence.empty()) silence = more.silence;
}

uint64_t DraftReport::OfDrafter::right() const {
  uint64_t sum = 0;
  for (const uint64_t n : right_at) sum += n;
  return sum;
}

void DraftReport::Steps::Add(const Steps& more) {
  steps += more.steps;
  tokens += more.tokens;
  seconds += more.seconds;
  payload_bytes += more.payload_bytes;
}

DraftReport::Steps DraftReport::all() const {
  Steps sum;
  for (const Steps& s : by_rows) sum.Add(s);
  return sum;
}

Result<std::unique_ptr<Drafting>> Drafting::Create(Engine& engine, std::vector<std::unique_ptr<Drafter>> drafters,
                                                   const DraftingOptions& options) {
  DFIN_CHECK(options.rows >= 2 && options.rows <= kMostDrafts + 1, "steps with drafts have 2 to kMostDrafts + 1 rows");
  DFIN_TRY(KdaReplay replay, KdaReplay::Create(engine.spec(), options.rows));
  return std::unique_ptr<Drafting>(new Drafting(engine, std::move(drafters), options, std::move(replay)));
}

Result<std::unique_ptr<Drafting>> Drafting::ForPlan(Engine& engine, DraftingSetup setup) {
  const MemoryPlan& plan = engine.plan();
  if (plan.draft_rows == 0) return std::unique_ptr<Drafting>();
  setup.limits.most = std::min(setup.limits.most, plan.draft_rows - 1);
  const DraftingOptions options{.rows = plan.draft_rows, .limits = setup.limits};
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (setup.ngram) {
    DFIN_TRY(auto ngram, NgramDrafter::Create({plan.context + 1, std::move(setup.stop_tokens), setup.first_special}));
    drafters.push_back(std::move(ngram));
  }
  const std::optional<DraftKind> kind = setup.draft_model ? engine.draft_kind() : std::nullopt;
  if (kind == DraftKind::kQwen && setup.bridge != nullptr) {
    DFIN_TRY(auto qwen, engine.NewQwenDrafter(std::move(setup.bridge), setup.limits.most));
    drafters.push_back(std::move(qwen));
  }
  if (kind == DraftKind::kDspark) {
    DFIN_TRY(auto dspark, engine.NewDsparkDrafter(setup.usable_vocab));
    drafters.push_back(std::move(dspark));
  }
  return Create(engine, std::move(drafters), options);
}

Drafting::Drafting(Engine& engine, std::vector<std::unique_ptr<Drafter>> drafters, const DraftingOptions& options,
                   KdaReplay replay)
    : engine_(engine),
      drafters_(std::move(drafters)),
      controller_(static_cast<int32_t>(drafters_.size()), options.limits),
      replay_(std::move(replay)),
      most_rows_(options.rows),
      logits_(static_cast<size_t>(options.rows * engine.spec().vocab_size)) {
  history_.reserve(static_cast<size_t>(engine.plan().context + 1));
  for (size_t d = 0; d < drafters_.size(); ++d) {
    report_.drafters.push_back({.name = std::string(drafters_[d]->name()), .failure = "", .silence = ""});
    SessionObserver* observer = drafters_[d]->observer();
    if (observer == nullptr) continue;
    DFIN_CHECK(observer_.inner == nullptr, "one drafter looks at the model's rows");
    observer_.inner = observer;
    observer_.drafter = static_cast<int32_t>(d);
  }
}

void Drafting::Observer::OnLayer(int32_t layer, const ConstRows& sum) {
  const int64_t start = clock_.NowNs();
  inner->OnLayer(layer, sum);
  seconds_ += SecondsBetween(start, clock_.NowNs());
}

void Drafting::Observer::OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) {
  const int64_t start = clock_.NowNs();
  inner->OnTokens(session_tokens, rows, cancel);
  seconds_ += SecondsBetween(start, clock_.NowNs());
}

void Drafting::BeginRequest(Session& session, std::span<const TokenId> stop_tokens) {
  session.SetObserver(observer_.inner == nullptr ? nullptr : &observer_);
  history_.clear();
  stop_tokens_.assign(stop_tokens.begin(), stop_tokens.end());
  DraftReport fresh;
  for (const auto& drafter : drafters_)
    fresh.drafters.push_back({.name = std::string(drafter->name()), .failure = "", .silence = ""});
  report_ = std::move(fresh);
  controller_.ForgetWatched();
}

Status Drafting::CheckProposal(const Proposal& proposal, int64_t most) const {
  if (proposal.count < 0 || proposal.count > most)
    return Fail(ErrorCode::kInternal, "proposal: expected at most ", most, " tokens, got ", proposal.count);
  if (proposal.kind < 0 || proposal.kind >= kDraftKinds)
    return Fail(ErrorCode::kInternal, "proposal: expected a kind below ", kDraftKinds, ", got ", proposal.kind);
  for (const float belief : proposal.belief)
    if (!(belief >= 0 && belief <= 1))
      return Fail(ErrorCode::kInternal, "proposal: expected beliefs from 0 to 1, got ", belief);
  for (size_t j = 0; j < static_cast<size_t>(proposal.count); ++j)
    if (proposed_[j] < 0 || proposed_[j] >= engine_.spec().vocab_size)
      return Fail(ErrorCode::kInternal, "proposal: expected token ids from 0 to ", engine_.spec().vocab_size - 1,
                  ", got ", proposed_[j]);
  return {};
}

// What comes after the end of an answer is never wanted.
void Drafting::CutBehindStop(Proposal& proposal) const {
  for (int64_t j = 0; j < proposal.count; ++j)
    if (std::find(stop_tokens_.begin(), stop_tokens_.end(), proposed_[static_cast<size_t>(j)]) != stop_tokens_.end())
      proposal.count = j + 1;
}

Proposal Drafting::Ask(size_t d, int64_t most, double* seconds) {
  DraftReport::OfDrafter& report = report_.drafters[d];
  const int64_t start = clock_.NowNs();
  Result<Proposal> made = drafters_[d]->Propose(history_, std::span(proposed_).first(static_cast<size_t>(most)));
  *seconds = SecondsBetween(start, clock_.NowNs());
  report.seconds += *seconds;
  if (made) {
    const Status good = CheckProposal(*made, most);
    if (!good) made = Failure(good.error());
  }
  if (!made) {
    report.failure = made.error().message();
    return {};
  }
  CutBehindStop(*made);
  if (made->count > 0) ++report.proposals;
  if (made->count == 0) report.silence = drafters_[d]->silence();
  return *made;
}

// Who failed, or knows nothing of this conversation, will not know more in this request.
bool Drafting::MayAsk(const DraftReport::OfDrafter& drafter) {
  return drafter.failure.empty() && drafter.silence.empty();
}

// Those who cost nothing are asked first; who costs something only where more may be hoped for.
Drafting::Plan Drafting::ChooseDrafts(int64_t most) {
  Plan plan;
  double best_rate = 1;
  for (const bool free : {true, false}) {
    for (size_t d = 0; d < drafters_.size(); ++d) {
      const auto number = static_cast<int32_t>(d);
      const bool costs_nothing = drafters_[d]->costs_nothing();
      if (costs_nothing != free || !MayAsk(report_.drafters[d])) continue;
      const int64_t wanted = std::min({controller_.Ask(number, costs_nothing, best_rate), drafters_[d]->most(), most});
      if (wanted <= 0) continue;
      double seconds = 0;
      const Proposal proposal = Ask(d, wanted, &seconds);
      const DraftChoice choice = controller_.Choose(number, proposal, seconds);
      if (choice.drafts > 0 && choice.rate > best_rate) {
        best_rate = choice.rate;
        plan = {number, choice.drafts};
        std::copy_n(proposed_.begin(), choice.drafts, rows_.begin() + 1);
      } else {
        controller_.Watch(number, proposal, proposed_);
      }
    }
  }
  return plan;
}

Status Drafting::ComputeOnce(Session& session, CancelToken cancel, const Plan& plan, DraftReport::Steps* step) {
  const std::span<const TokenId> tokens = RowTokens(plan);
  const Rows logits(logits_.data(), plan.drafts + 1, engine_.spec().vocab_size);
  const int64_t start = clock_.NowNs();
  const uint64_t bytes = engine_.payload_bytes();
  const Status computed = plan.drafts == 0 ? engine_.Feed(session, tokens, logits, cancel)
                                           : engine_.Try(session, replay_, tokens, logits, cancel);
  *step = {.steps = 1,
           .tokens = 0,
           .seconds = SecondsBetween(start, clock_.NowNs()),
           .payload_bytes = engine_.payload_bytes() - bytes};
  return computed;
}

// A step with drafts that fails has changed nothing; what it took is in the report, and no measure of anything.
Status Drafting::ComputeRows(Session& session, CancelToken cancel, Plan* plan, DraftReport::Steps* step) {
  const Status computed = ComputeOnce(session, cancel, *plan, step);
  if (computed || plan->drafts == 0 || computed.error().code() == ErrorCode::kCancelled) return computed;
  report_.by_rows[static_cast<size_t>(plan->drafts + 1)].Add(*step);
  report_.given_up = computed.error().message();
  *plan = {};
  return ComputeOnce(session, cancel, *plan, step);
}

Result<bool> Drafting::Step(Session& session, TokenId* pending, int64_t most_new, CancelToken cancel,
                            const NextToken& next) {
  if (history_.size() != session.tokens().size()) {  // a new request, or other steps came in between
    history_.assign(session.tokens().begin(), session.tokens().end());
    controller_.ForgetWatched();
  }
  history_.push_back(*pending);
  rows_[0] = *pending;
  const int64_t room = session.capacity() - session.length();
  Plan plan;
  if (report_.given_up.empty()) plan = ChooseDrafts(std::min({most_rows_, most_new, room}) - 1);
  DraftReport::Steps step;
  (void)observer_.TakeSeconds();  // of the prompt
  DFIN_TRY_VOID(ComputeRows(session, cancel, &plan, &step));
  const int64_t start = clock_.NowNs();
  int64_t right = 0;
  Result<bool> more = TakeTokens(plan, next, &right);
  // A row whose logits are no numbers was read, as plain decoding would have read it.
  const int64_t read = more ? came_count_ : came_count_ + 1;
  if (plan.drafts > 0) DFIN_TRY_VOID(engine_.Accept(session, replay_, RowTokens(plan), read));
  if (!more) return more;
  step.tokens = static_cast<uint64_t>(came_count_);
  step.seconds += SecondsBetween(start, clock_.NowNs());
  const double observing = observer_.TakeSeconds();
  step.seconds = std::max(step.seconds - observing, 0.0);
  AccountObserver(session, observing);
  Account(plan, right, step);
  history_.insert(history_.end(), came_.begin(), came_.begin() + came_count_ - 1);
  *pending = came_[static_cast<size_t>(came_count_ - 1)];
  return more;
}

// Row after row, while the token that comes is the one that was drafted.
Result<bool> Drafting::TakeTokens(const Plan& plan, const NextToken& next, int64_t* right) {
  const auto vocab = static_cast<size_t>(engine_.spec().vocab_size);
  came_count_ = 0;
  for (int64_t i = 0;; ++i) {
    TokenId token = 0;
    SampledRow row{std::span(logits_).subspan(static_cast<size_t>(i) * vocab, vocab)};
    if (i < plan.drafts) {
      row.draft = rows_[static_cast<size_t>(i + 1)];
      row.q = drafters_[static_cast<size_t>(plan.drafter)]->Distribution(i);
    }
    DFIN_TRY(const bool more, next(row, &token));
    came_[static_cast<size_t>(came_count_++)] = token;
    const bool drafted = i < plan.drafts && token == rows_[static_cast<size_t>(i + 1)];
    if (drafted) ++*right;
    if (!more || !drafted) return more;
  }
}

void Drafting::AccountObserver(Session& session, double seconds) {
  if (observer_.inner == nullptr) return;
  report_.drafters[static_cast<size_t>(observer_.drafter)].seconds_observing += seconds;
  controller_.Observed(observer_.drafter, seconds, came_count_);
  if (controller_.MayObserve(observer_.drafter)) return;
  session.SetObserver(nullptr);
  report_.drafters[static_cast<size_t>(observer_.drafter)].silence = "looking at the model's rows cost too much";
}

void Drafting::Account(const Plan& plan, int64_t right, const DraftReport::Steps& step) {
  const int64_t tried = std::min(plan.drafts, came_count_);
  controller_.Record({plan.drafter, plan.drafts + 1, tried, right, step.seconds},
                     std::span(came_).first(static_cast<size_t>(came_count_)));
  report_.state = controller_.state();
  report_.by_rows[static_cast<size_t>(plan.drafts + 1)].Add(step);
  if (plan.drafts == 0) return;
  DraftReport::OfDrafter& drafter = report_.drafters[static_cast<size_t>(plan.drafter)];
  for (int64_t j = 0; j < tried; ++j) {
    ++drafter.tried_at[static_cast<size_t>(j)];
    if (j < right) ++drafter.right_at[static_cast<size_t>(j)];
  }
}

}  // namespace deltafin
