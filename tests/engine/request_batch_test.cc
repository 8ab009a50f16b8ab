// Several requests at once: every one gets the tokens that it would get alone, whatever happens to the others.
#include "engine/request_batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>

#include "support/engine_runs.h"
#include "support/fake_io_engine.h"
#include "support/made_drafters.h"

namespace deltafin {
namespace {

using Tokens = std::vector<TokenId>;

// Keeps what a request is told, and may end it after so many tokens.
struct Listener final : BatchEvents {
  void OnPromptRead(int64_t done, int64_t total) override {
    EXPECT_GE(done, prompt_read);
    EXPECT_LE(done, total);
    prompt_read = done;
  }
  void OnPromptScores(int64_t index, const TokenScores& scores) override {
    EXPECT_EQ(index, static_cast<int64_t>(prompt_scores.size()) + 1);
    prompt_scores.push_back(scores);
  }
  bool OnToken(TokenId token, const TokenScores* scores) override {
    EXPECT_EQ(ends, 0);
    tokens.push_back(token);
    if (scores != nullptr) token_scores.push_back(*scores);
    if (on_token) on_token();
    return want_more;
  }
  void OnEnd(const Result<BatchResult>& ended) override {
    ++ends;
    if (ended)
      result = *ended;
    else
      error = ended.error();
  }

  Tokens tokens;
  std::vector<TokenScores> prompt_scores, token_scores;
  int64_t prompt_read = 0;
  int ends = 0;
  bool want_more = true;
  std::function<void()> on_token;
  BatchResult result;
  std::optional<Error> error;
};

class Batches : public testing::Test {
 protected:
  void Open(EngineOptions options) {
    options.model = test::MicroFolder();
    if (options.context == 0) options.context = 1024;
    options.sequences = 8;
    engine_ = std::make_unique<test::OpenedEngine>(options);
    ASSERT_TRUE(engine_->ok()) << engine_->error().message();
  }
  test::OpenedEngine& engine() { return *engine_; }

  Tokens Random(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    Tokens tokens(static_cast<size_t>(count));
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(engine()->spec().vocab_size));
    return tokens;
  }
  BatchRequest Request(const Tokens& prompt, int64_t max_new, Listener& listener, SamplingParams sampling = {}) {
    BatchRequest request;
    request.prompt = prompt;
    request.max_new = max_new;
    request.sampling = sampling;
    request.events = &listener;
    return request;
  }
  Tokens Alone(const Tokens& prompt, int64_t max_new, SamplingParams sampling = {}) {
    Session session = std::move(*engine()->NewSession());
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = max_new;
    request.sampling = sampling;
    Result<GenerationResult> result = Generate(*engine(), session, engine().monitor(), request);
    EXPECT_TRUE(result) << result.error().message();
    return result ? result->tokens : Tokens{};
  }

  std::unique_ptr<test::OpenedEngine> engine_;
};

TEST_F(Batches, EveryRequestGetsTheTokensItWouldGetAlone) {
  for (const int64_t chunk : {1, 3, 16, 0}) {
    Open({.chunk = chunk});
    RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
    std::vector<Listener> listeners(7);
    std::vector<Tokens> prompts;
    std::vector<SamplingParams> sampling;
    for (uint32_t i = 0; i < listeners.size(); ++i) {
      prompts.push_back(Random(1 + 9 * i, i));
      sampling.push_back(i % 2 == 0 ? SamplingParams{}
                                    : SamplingParams{.temperature = 1.1, .frequency_penalty = 0.4, .seed = i});
      ASSERT_TRUE(batch.Add(Request(prompts[i], 4 + 3 * i, listeners[i], sampling[i])));
      if (i % 3 == 2) batch.Step();  // some come while others are at work
    }
    while (batch.Step()) {
    }
    for (uint32_t i = 0; i < listeners.size(); ++i) {
      EXPECT_EQ(listeners[i].tokens, Alone(prompts[i], 4 + 3 * i, sampling[i]))
          << "request " << i << ", chunk " << chunk;
      EXPECT_EQ(listeners[i].ends, 1);
      EXPECT_EQ(listeners[i].result.reason, StopReason::kLength);
      EXPECT_EQ(listeners[i].prompt_read, static_cast<int64_t>(prompts[i].size()));
    }
  }
}

TEST_F(Batches, OneThatIsCancelledEndsWithinAStepAndTheOthersDoNotNotice) {
  Open({});
  RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
  Listener stays, goes, reads;
  CancelSource cancel, cancel_reading;
  BatchRequest going = Request(Random(5, 2), 100, goes), reading = Request(Random(900, 3), 3, reads);
  going.cancel = cancel.token();
  reading.cancel = cancel_reading.token();
  ASSERT_TRUE(batch.Add(Request(Random(20, 1), 30, stays)));
  ASSERT_TRUE(batch.Add(std::move(going)));
  goes.on_token = [&] {
    if (goes.tokens.size() == 4) cancel.Cancel();
  };
  while (goes.tokens.size() < 4) batch.Step();
  ASSERT_TRUE(batch.Add(std::move(reading)));
  batch.Step();
  cancel_reading.Cancel();
  while (batch.Step()) {
  }
  EXPECT_EQ(goes.tokens.size(), 4u);
  EXPECT_EQ(goes.result.reason, StopReason::kCancelled);
  EXPECT_EQ(reads.result.reason, StopReason::kCancelled);
  EXPECT_EQ(stays.tokens, Alone(Random(20, 1), 30));
}

TEST_F(Batches, TheCallerAndStopTokensEndARequest) {
  Open({});
  const Tokens alone = Alone(Random(12, 4), 20);
  RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
  Listener caller, stopped;
  caller.on_token = [&] { caller.want_more = caller.tokens.size() < 6; };
  BatchRequest stops = Request(Random(12, 4), 20, stopped);
  stops.stop_tokens = {alone[2]};
  ASSERT_TRUE(batch.Add(Request(Random(12, 4), 20, caller)));
  ASSERT_TRUE(batch.Add(std::move(stops)));
  while (batch.Step()) {
  }
  EXPECT_EQ(caller.tokens, Tokens(alone.begin(), alone.begin() + 6));
  EXPECT_EQ(caller.result.reason, StopReason::kCaller);
  const auto first = std::find(alone.begin(), alone.end(), alone[2]);
  EXPECT_EQ(stopped.tokens, Tokens(alone.begin(), first + 1));
  EXPECT_EQ(stopped.result.reason, StopReason::kStopToken);
}

TEST_F(Batches, RequestsWithTheSamePromptReadItOnce) {
  for (const uint64_t budget : {uint64_t{0}, uint64_t{100} << 20}) {
    Open({});
    PrefixCache prefixes(budget);
    RequestBatch batch(*engine(), engine().monitor(), &prefixes, {});
    const Tokens prompt = Random(60, 5);
    std::vector<Listener> listeners(4);
    for (uint32_t i = 0; i < 4; ++i)
      ASSERT_TRUE(batch.Add(Request(prompt, 8, listeners[i], {.temperature = 1, .seed = i})));
    while (batch.Step()) {
    }
    int64_t read = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      read += listeners[i].result.prompt_tokens_read;
      EXPECT_EQ(listeners[i].tokens, Alone(prompt, 8, {.temperature = 1, .seed = i}));
    }
    EXPECT_EQ(read, 60);
  }
}

TEST_F(Batches, TheNextTurnReadsOnlyWhatIsNew) {
  Open({});
  PrefixCache prefixes(100 << 20);
  RequestBatch batch(*engine(), engine().monitor(), &prefixes, {});
  Tokens history = Random(80, 6);
  Listener first;
  ASSERT_TRUE(batch.Add(Request(history, 10, first)));
  while (batch.Step()) {
  }
  history.insert(history.end(), first.tokens.begin(), first.tokens.end());
  const Tokens more = Random(7, 7);
  history.insert(history.end(), more.begin(), more.end());
  Listener second, again;
  ASSERT_TRUE(batch.Add(Request(history, 10, second)));
  while (batch.Step()) {
  }
  EXPECT_EQ(second.result.prompt_tokens_read, 8);  // the last token of an answer was never fed
  EXPECT_EQ(second.tokens, Alone(history, 10));
  ASSERT_TRUE(batch.Add(Request(history, 10, again)));
  while (batch.Step()) {
  }
  EXPECT_EQ(again.result.prompt_tokens_read, 0);
  EXPECT_EQ(again.tokens, second.tokens);
}

// The nearest figure that does not need the model: log-softmax in long double.
TEST_F(Batches, ScoresAreLogProbabilitiesOfTheModelItself) {
  Open({});
  const Tokens prompt = Random(40, 8);
  const int64_t vocab = engine()->spec().vocab_size;
  Session session = std::move(*engine()->NewSession());
  const Result<std::vector<float>> logits = test::AllLogits(*engine(), session, prompt, {7});
  ASSERT_TRUE(logits);
  RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
  Listener listener;
  BatchRequest request = Request(prompt, 3, listener);
  request.top_scores = 2;
  request.score_prompt = true;
  request.logit_bias = {{11, 100.0f}};
  ASSERT_TRUE(batch.Add(std::move(request)));
  while (batch.Step()) {
  }
  ASSERT_EQ(listener.prompt_scores.size(), prompt.size() - 1);
  EXPECT_EQ(listener.tokens, (Tokens{11, 11, 11}));  // the bias chose it; its score is the model's own
  ASSERT_EQ(listener.token_scores.size(), 3u);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const float* row = logits->data() + static_cast<int64_t>(i) * vocab;
    long double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<long double>(row[v]));
    const bool last = i + 1 == prompt.size();
    const TokenScores& scores = last ? listener.token_scores[0] : listener.prompt_scores[i];
    const TokenId token = last ? 11 : prompt[i + 1];
    EXPECT_NEAR(scores.logprob, static_cast<double>(row[token] - std::log(sum)), 1e-5);
    ASSERT_EQ(scores.top.size(), 2u);
    EXPECT_EQ(row[scores.top[0].id], *std::max_element(row, row + vocab));
    EXPECT_GE(scores.top[0].logprob, scores.top[1].logprob);
  }
}

TEST_F(Batches, AFilterDecidesWhatMayComeAndIsToldHowMuchIsLeft) {
  struct OnlyEven final : TokenFilter {
    Status Mask(std::span<float> logits, int64_t remaining) override {
      left.push_back(remaining);
      for (size_t id = 1; id < logits.size(); id += 2) logits[id] = NAN;
      return {};
    }
    void Accept(TokenId token) override { accepted.push_back(token); }
    std::vector<int64_t> left;
    Tokens accepted;
  };
  Open({});
  RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
  OnlyEven filter;
  Listener listener;
  BatchRequest request = Request(Random(10, 9), 5, listener, {.temperature = 1.5, .seed = 3});
  request.filter = &filter;
  ASSERT_TRUE(batch.Add(std::move(request)));
  while (batch.Step()) {
  }
  for (const TokenId token : listener.tokens) EXPECT_EQ(token % 2, 0);
  EXPECT_EQ(filter.accepted, listener.tokens);
  EXPECT_EQ(filter.left, (std::vector<int64_t>{5, 4, 3, 2, 1}));
}

// What a request was told in a batch of its own, or with the others of `with`.
struct Told {
  Tokens tokens;
  std::vector<TokenScores> scores;
  Tokens accepted;  // by its filter
  StopReason reason = StopReason::kLength;
  bool operator==(const Told&) const = default;
};

TEST_F(Batches, AnAnswerThatIsAloneMayBeDraftedWithTheSameTokensScoresAndFilter) {
  struct NotMultiplesOfThree final : TokenFilter {
    Status Mask(std::span<float> logits, int64_t) override {
      for (size_t id = 0; id < logits.size(); id += 3) logits[id] = NAN;
      return {};
    }
    void Accept(TokenId token) override { accepted.push_back(token); }
    Tokens accepted;
  };
  Open({.draft = DraftMode::kNgram});
  const Tokens first = Random(12, 5), second = Random(30, 6);
  // The second request comes while the first is answered; both end alone.
  const auto run = [&](Drafting* drafting, uint64_t* right) {
    PrefixCache prefixes(1 << 20);
    RequestBatch batch(*engine(), engine().monitor(), &prefixes, {}, drafting);
    std::array<Told, 3> told;
    std::array<Listener, 3> listeners;
    NotMultiplesOfThree filter;
    BatchRequest one = Request(first, 30, listeners[0], {.temperature = 1, .seed = 8});
    one.filter = &filter;
    one.top_scores = 2;
    one.logit_bias = {{7, 3.0f}};
    EXPECT_TRUE(batch.Add(std::move(one)));
    listeners[0].on_token = [&] {
      if (listeners[0].tokens.size() == 10) {
        EXPECT_TRUE(batch.Add(Request(second, 40, listeners[1])));
      }
    };
    while (batch.Step()) {
    }
    // The next turn goes on from what was kept of the answer.
    Tokens turn = second;
    turn.insert(turn.end(), listeners[1].tokens.begin(), listeners[1].tokens.end());
    turn.push_back(3);
    EXPECT_TRUE(batch.Add(Request(turn, 8, listeners[2])));
    while (batch.Step()) {
    }
    EXPECT_EQ(listeners[2].result.prompt_tokens_read, 2) << "the last token was never read, and one is new";
    for (size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(listeners[i].ends, 1);
      told[i] = {listeners[i].tokens, listeners[i].token_scores, {}, listeners[i].result.reason};
    }
    told[0].accepted = filter.accepted;
    *right = batch.drafts_right();
    return told;
  };
  uint64_t right = 0;
  const std::array<Told, 3> plain = run(nullptr, &right);
  ASSERT_EQ(plain[0].accepted, plain[0].tokens);
  std::array<Tokens, 3> texts = {first, second, second};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == 2) {
      texts[i].insert(texts[i].end(), plain[1].tokens.begin(), plain[1].tokens.end());
      texts[i].push_back(3);
    }
    texts[i].insert(texts[i].end(), plain[i].tokens.begin(), plain[i].tokens.end());
  }
  for (const int64_t correct : {0, 2, 7}) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<test::MadeDrafter>(
        [&, correct](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
          for (const Tokens& text : texts)
            if (history.size() < text.size() && std::equal(history.begin(), history.end(), text.begin()))
              return test::Oracle(text, correct)(history, out);
          return 0;
        }));
    auto drafting = std::move(
        *Drafting::Create(*engine(), std::move(drafters), {.rows = 8, .limits = {.most = 7, .always = true}}));
    EXPECT_EQ(run(drafting.get(), &right), plain) << correct << " right of each proposal";
    EXPECT_EQ(right > 0, correct > 0);
  }
}

TEST_F(Batches, RequestsThatCannotBeServedAreRefused) {
  Open({.context = 32});
  RequestBatch batch(*engine(), engine().monitor(), nullptr, {});
  Listener listener;
  EXPECT_FALSE(batch.Add(Request({}, 1, listener)));
  EXPECT_FALSE(batch.Add(Request(Random(33, 1), 1, listener)));
  EXPECT_FALSE(batch.Add(Request({-1}, 1, listener)));
  BatchRequest bias = Request({1}, 1, listener);
  bias.logit_bias = {{1 << 30, 1.0f}};
  EXPECT_FALSE(batch.Add(std::move(bias)));
  EXPECT_EQ(batch.live(), 0u);
  EXPECT_EQ(listener.ends, 0);
  ASSERT_TRUE(batch.Add(Request(Random(32, 1), 9, listener)));  // the one new token is never fed
  while (batch.Step()) {
  }
  EXPECT_EQ(listener.tokens.size(), 1u);
}

TEST_F(Batches, AFailedReadEndsOnlyWhoNeedsItAndEverybodyIsTold) {
  auto failing = std::make_shared<std::atomic<bool>>(false);
  test::OpenedEngine engine({.model = test::MicroFolder(), .expert_cache = 64u << 10, .sequences = 2},
                            [failing]() -> Result<std::unique_ptr<IoEngine>> {
                              auto io = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 50});
                              io->SetFault([failing](const ReadRequest&) -> Status {
                                if (!failing->load()) return {};
                                return Fail(ErrorCode::kIo, "made to fail");
                              });
                              return io;
                            });
  ASSERT_TRUE(engine.ok());
  RequestBatch batch(*engine, engine.monitor(), nullptr, {});
  Listener one, two, after;
  ASSERT_TRUE(batch.Add(Request({1, 2, 3}, 50, one)));
  ASSERT_TRUE(batch.Add(Request({4, 5, 6}, 50, two)));
  while (two.tokens.size() < 3) batch.Step();
  *failing = true;
  while (batch.Step()) {
  }
  for (const Listener* listener : {&one, &two}) {
    EXPECT_EQ(listener->ends, 1);
    ASSERT_TRUE(listener->error);
    EXPECT_NE(listener->error->message().find("made to fail"), std::string::npos);
  }
  *failing = false;
  ASSERT_TRUE(batch.Add(Request({1, 2, 3}, 5, after)));
  while (batch.Step()) {
  }
  EXPECT_EQ(after.tokens, Tokens(one.tokens.begin(), one.tokens.begin() + static_cast<std::ptrdiff_t>(
                                                                              std::min<size_t>(5, one.tokens.size()))));
}

}  // namespace
}  // namespace deltafin
