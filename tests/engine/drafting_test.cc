// Drafts change the number of steps, never a token: whatever a drafter proposes, the answer, the reason it ended and
// the state of the session are those of plain decoding.
#include "engine/drafting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/fake_io_engine.h"
#include "support/made_drafters.h"

namespace deltafin {
namespace {

using test::MadeDrafter;
using test::Oracle;

const std::vector<TokenId> kPrompt = {17, 65, 161, 161, 135, 152, 5, 117, 141, 197, 109};
constexpr int64_t kNew = 40;

struct Outcome {
  std::vector<TokenId> tokens;
  StopReason reason = StopReason::kLength;
  std::vector<TokenId> session_tokens;
  std::vector<std::byte> kda;
  std::vector<float> next_logits;  // after one token more
  std::optional<DraftReport> drafts;
};

struct Wanted {
  SamplingParams sampling = {};
  int64_t max_new = kNew;
  std::vector<TokenId> stop_tokens = {};
  size_t caller_stops_after = 1000;  // tokens
};

// The next token's logits tell of every latent and of the whole state.
void LookAt(Engine& engine, Session& session, Outcome& outcome) {
  outcome.session_tokens = session.tokens();
  const Bytes kda = session.state().CurrentKdaBytes();
  outcome.kda.assign(kda.begin(), kda.end());
  if (session.length() == session.capacity()) return;
  outcome.next_logits = *test::AllLogits(engine, session, {3}, {1});
}

Outcome Decode(test::OpenedEngine& engine, const Wanted& wanted, Drafting* drafting) {
  Result<Session> session = engine->NewSession();
  GenerationRequest request;
  request.prompt = kPrompt;
  request.max_new = wanted.max_new;
  request.sampling = wanted.sampling;
  request.stop_tokens = wanted.stop_tokens;
  request.drafting = drafting;
  size_t seen = 0;
  request.on_token = [&](TokenId) { return ++seen < wanted.caller_stops_after; };
  Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  Outcome outcome;
  EXPECT_TRUE(result) << result.error().message();
  if (!result) return outcome;
  outcome.tokens = result->tokens;
  outcome.reason = result->reason;
  outcome.drafts = result->drafts;
  LookAt(*engine, *session, outcome);
  return outcome;
}

std::unique_ptr<Drafting> WithDrafter(Engine& engine, MadeDrafter::Make make, int64_t most = kMostDrafts,
                                      bool always = true, float belief = 0.9f) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<MadeDrafter>(std::move(make), belief));
  return std::move(
      *Drafting::Create(engine, std::move(drafters), {.rows = most + 1, .limits = {.most = most, .always = always}}));
}

void ExpectSame(const Outcome& drafted, const Outcome& plain) {
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.reason, plain.reason);
  EXPECT_EQ(drafted.session_tokens, plain.session_tokens);
  EXPECT_EQ(drafted.kda, plain.kda);
  ASSERT_EQ(drafted.next_logits.size(), plain.next_logits.size());
  EXPECT_EQ(std::memcmp(drafted.next_logits.data(), plain.next_logits.data(), plain.next_logits.size() * sizeof(float)),
            0);
}

std::vector<TokenId> WholeText(const Outcome& outcome) {
  std::vector<TokenId> text = kPrompt;
  text.insert(text.end(), outcome.tokens.begin(), outcome.tokens.end());
  return text;
}

struct Case {
  const char* name;
  std::string folder;
  SamplingParams sampling;
};

class Drafted : public testing::TestWithParam<Case> {};

TEST_P(Drafted, TheAnswerIsThatOfPlainDecodingAtEveryWidth) {
  test::OpenedEngine engine({.model = GetParam().folder});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const Wanted wanted{.sampling = GetParam().sampling};
  const Outcome plain = Decode(engine, wanted, nullptr);
  ASSERT_EQ(static_cast<int64_t>(plain.tokens.size()), kNew);
  for (int64_t most = 1; most <= kMostDrafts; ++most) {
    SCOPED_TRACE(testing::Message() << "up to " << most << " drafts");
    const auto right = WithDrafter(*engine, Oracle(WholeText(plain)), most);
    const Outcome all_right = Decode(engine, wanted, right.get());
    ExpectSame(all_right, plain);
    // The first token comes from the prompt; each step brings one more than is drafted.
    EXPECT_EQ(all_right.drafts->all().steps, static_cast<uint64_t>((kNew - 1 + most) / (most + 1)));
    ExpectSame(Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(plain), most / 2), most).get()), plain);
    const Outcome wrong = Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(plain), 0), most).get());
    ExpectSame(wrong, plain);
    EXPECT_EQ(wrong.drafts->all().steps, static_cast<uint64_t>(kNew - 1));
  }
}

TEST_P(Drafted, GarbageOfAnyWidthChangesNothing) {
  test::OpenedEngine engine({.model = GetParam().folder});
  ASSERT_TRUE(engine.ok());
  const Wanted wanted{.sampling = GetParam().sampling};
  const Outcome plain = Decode(engine, wanted, nullptr);
  const std::vector<TokenId> text = WholeText(plain);
  std::mt19937 random(11);
  const auto vocab = static_cast<uint32_t>(engine->spec().vocab_size);
  const auto sometimes_right = [&](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
    const size_t count = random() % (out.size() + 1);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = history.size() + i;
      out[i] = at < text.size() && random() % 3 != 0 ? text[at] : static_cast<TokenId>(random() % vocab);
    }
    return static_cast<int64_t>(count);
  };
  for (const bool always : {true, false})
    ExpectSame(Decode(engine, wanted, WithDrafter(*engine, sometimes_right, 7, always).get()), plain);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Drafted,
    testing::Values(Case{"NanoGreedy", test::NanoFolder(), {}}, Case{"MicroGreedy", test::MicroFolder(), {}},
                    Case{"NanoSampled", test::NanoFolder(), {.temperature = 1, .top_p = 0.95, .seed = 5}},
                    Case{"MicroSampledWithPenalties",
                         test::MicroFolder(),
                         {.temperature = 1.3,
                          .top_k = 200,
                          .presence_penalty = 0.5,
                          .frequency_penalty = 0.3,
                          .repetition_penalty = 1.2,
                          .seed = 9}}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

class Ends : public testing::Test {
 protected:
  test::OpenedEngine engine{EngineOptions{.model = test::MicroFolder(), .context = 64}};
};

TEST_F(Ends, AStopTokenInsideADraftEndsTheAnswerThere) {
  const Outcome longest = Decode(engine, {}, nullptr);
  for (size_t at = 1; at < 20; ++at) {
    SCOPED_TRACE(at);
    const Wanted wanted{.stop_tokens = {longest.tokens[at]}};
    const Outcome plain = Decode(engine, wanted, nullptr);
    EXPECT_EQ(plain.reason, StopReason::kStopToken);
    // The drafter goes on behind the end.
    ExpectSame(Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(longest))).get()), plain);
  }
}

TEST_F(Ends, DraftsOfStopTokensAloneChangeNothing) {
  const Wanted wanted{.stop_tokens = {2, 300}};
  const Outcome plain = Decode(engine, wanted, nullptr);
  const auto stops = [](std::span<const TokenId>, std::span<TokenId> out) -> Result<int64_t> {
    std::fill(out.begin(), out.end(), 300);
    return static_cast<int64_t>(out.size());
  };
  const Outcome drafted = Decode(engine, wanted, WithDrafter(*engine, stops).get());
  ExpectSame(drafted, plain);
  EXPECT_EQ(drafted.drafts->by_rows[8].steps, 0u) << "nothing behind the first one is checked";
  EXPECT_GT(drafted.drafts->by_rows[2].steps, 0u);
}

TEST_F(Ends, TheLimitOfTokensMayLieInsideADraft) {
  const Outcome longest = Decode(engine, {}, nullptr);
  for (int64_t max_new = 1; max_new <= 18; ++max_new) {
    SCOPED_TRACE(max_new);
    const Wanted wanted{.max_new = max_new};
    ExpectSame(Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(longest))).get()),
               Decode(engine, wanted, nullptr));
  }
}

TEST_F(Ends, TheCallerMayStopInsideADraft) {
  const Outcome longest = Decode(engine, {}, nullptr);
  for (size_t after = 1; after <= 18; ++after) {
    SCOPED_TRACE(after);
    const Wanted wanted{.caller_stops_after = after};
    const Outcome plain = Decode(engine, wanted, nullptr);
    EXPECT_EQ(plain.reason, StopReason::kCaller);
    ExpectSame(Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(longest))).get()), plain);
  }
}

TEST_F(Ends, TheContextMayEndInsideADraft) {
  const Wanted wanted{.max_new = 0};
  const Outcome plain = Decode(engine, wanted, nullptr);
  EXPECT_EQ(plain.session_tokens.size(), 64u);
  ExpectSame(Decode(engine, wanted, WithDrafter(*engine, Oracle(WholeText(plain))).get()), plain);
}

struct Fault {
  const char* name;
  MadeDrafter::Make make;
  const char* says;
};

class Faulty : public testing::TestWithParam<Fault> {};

TEST_P(Faulty, ADrafterIsLeftOutAndTheAnswerIsTheSame) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  const Outcome plain = Decode(engine, {}, nullptr);
  const auto drafting = WithDrafter(*engine, GetParam().make);
  for (int request = 0; request < 2; ++request) {
    const Outcome drafted = Decode(engine, {}, drafting.get());
    ExpectSame(drafted, plain);
    const std::string& failure = drafted.drafts->drafters[0].failure;
    EXPECT_NE(failure.find(GetParam().says), std::string::npos) << failure;
  }
}

Result<int64_t> OneToken(std::span<TokenId> out, TokenId token) {
  out[0] = token;
  return 1;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Faulty,
    testing::Values(Fault{"FailsAtOnce",
                          [](std::span<const TokenId>, std::span<TokenId>) -> Result<int64_t> {
                            return Fail(ErrorCode::kInternal, "made to fail");
                          },
                          "made to fail"},
                    Fault{"FailsInTheMiddle",
                          [](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
                            if (history.size() > 25) return Fail(ErrorCode::kInternal, "made to fail");
                            return OneToken(out, 7);
                          },
                          "made to fail"},
                    Fault{"IdsOutsideTheVocabulary",
                          [](std::span<const TokenId>, std::span<TokenId> out) { return OneToken(out, 512); },
                          "token ids from 0 to 511, got 512"},
                    Fault{"NegativeIds",
                          [](std::span<const TokenId>, std::span<TokenId> out) { return OneToken(out, -1); }, "got -1"},
                    Fault{"MoreThanWasAskedFor",
                          [](std::span<const TokenId>, std::span<TokenId>) -> Result<int64_t> { return 9; }, "at most"},
                    Fault{"LessThanNothing",
                          [](std::span<const TokenId>, std::span<TokenId>) -> Result<int64_t> { return -2; },
                          "got -2"}),
    [](const testing::TestParamInfo<Fault>& info) { return info.param.name; });

TEST(FaultyBelief, OneThatIsNoNumberLeavesTheDrafterOut) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  const Outcome plain = Decode(engine, {}, nullptr);
  const auto right = Oracle(WholeText(plain));
  for (const float belief : {std::numeric_limits<float>::quiet_NaN(), -0.5f, 2.0f}) {
    const Outcome drafted = Decode(engine, {}, WithDrafter(*engine, right, 7, false, belief).get());
    ExpectSame(drafted, plain);
    EXPECT_NE(drafted.drafts->drafters[0].failure.find("beliefs"), std::string::npos) << belief;
  }
}

// Tokens that came in steps of others are not those that a proposal was watched for.
TEST(Watching, AProposalIsNotComparedWithTokensBehindAGap) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  const std::vector<TokenId> text = WholeText(Decode(engine, {}, nullptr));
  const auto drafting = WithDrafter(*engine, Oracle(text), kMostDrafts, /*always=*/false, /*belief=*/0);
  Result<Session> session = engine->NewSession();
  drafting->BeginRequest(*session, {});
  ASSERT_TRUE(test::AllLogits(*engine, *session, kPrompt, {100}));
  TokenId pending = text[kPrompt.size()];
  const auto next = [&](const Drafting::SampledRow&, TokenId* token) -> Result<bool> {
    *token = text[session->tokens().size()];
    return true;
  };
  while (session->tokens().size() + 4 < text.size()) {
    for (int alone = 0; alone < 2; ++alone) ASSERT_TRUE(drafting->Step(*session, &pending, kNew, {}, next));
    ASSERT_TRUE(engine->Feed(*session, {&pending, 1}, {}, {}));
    pending = text[session->tokens().size()];
  }
  EXPECT_EQ(drafting->controller().record(0, 0).proposals(), 0) << "two tokens are less than a whole proposal";
}

// Looks at tokens for much longer than a step takes.
class SlowWatcher final : public SessionObserver {
 public:
  void OnLayer(int32_t, const ConstRows&) override {}
  void OnTokens(std::span<const TokenId>, int64_t, CancelToken) override {
    ++looked;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  int looked = 0;
};

TEST(Watching, WhoLooksForLongerThanItMayEverBringIsStoppedUntilTheNextRequest) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  const Outcome plain = Decode(engine, {}, nullptr);
  SlowWatcher watcher;
  auto made =
      std::make_unique<MadeDrafter>([](std::span<const TokenId>, std::span<TokenId>) -> Result<int64_t> { return 0; });
  made->watcher = &watcher;
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(made));
  const auto drafting = std::move(*Drafting::Create(*engine, std::move(drafters), {.rows = 8}));
  for (int request = 0; request < 2; ++request) {
    watcher.looked = 0;
    const Outcome drafted = Decode(engine, {}, drafting.get());
    ExpectSame(drafted, plain);
    EXPECT_GE(watcher.looked, 1) << "at the prompt";
    EXPECT_LE(watcher.looked, 5);
    const DraftReport::OfDrafter& report = drafted.drafts->drafters[0];
    EXPECT_NE(report.silence, "");
    EXPECT_GE(report.seconds_observing, 0.03) << "apart from the steps";
  }
}

TEST(DraftedCancellation, BetweenProposalAndCommitLeavesWhatPlainDecodingHasThere) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  const Outcome plain = Decode(engine, {}, nullptr);
  CancelSource cancel;
  const auto oracle = Oracle(WholeText(plain));
  const auto drafting =
      WithDrafter(*engine, [&](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
        if (history.size() > kPrompt.size() + 20) cancel.Cancel();
        return oracle(history, out);
      });
  Result<Session> session = engine->NewSession();
  GenerationRequest request;
  request.prompt = kPrompt;
  request.max_new = kNew;
  request.drafting = drafting.get();
  request.cancel = cancel.token();
  const Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kCancelled);
  const auto came = static_cast<int64_t>(result->tokens.size());
  ASSERT_GT(came, 20);
  Outcome cancelled;
  cancelled.tokens = result->tokens;
  LookAt(*engine, *session, cancelled);
  Outcome expected = Decode(engine, {.max_new = came}, nullptr);
  cancelled.reason = expected.reason;
  ExpectSame(cancelled, expected);
}

TEST(DraftedFailure, AReadThatFailsInTheMiddleOfAStepChangesNothing) {
  auto failing = std::make_shared<std::atomic<bool>>(false);
  test::OpenedEngine engine({.model = test::MicroFolder(), .expert_cache = 64u << 10},
                            [failing]() -> Result<std::unique_ptr<IoEngine>> {
                              auto io = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 50});
                              io->SetFault([failing](const ReadRequest& read) -> Status {
                                if (!failing->load()) return {};
                                return Fail(ErrorCode::kIo, read.file->path(), ": made to fail");
                              });
                              return io;
                            });
  ASSERT_TRUE(engine.ok());
  const Outcome plain = Decode(engine, {}, nullptr);
  const auto oracle = Oracle(WholeText(plain));
  const auto drafting =
      WithDrafter(*engine, [&](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
        if (history.size() > kPrompt.size() + 20) *failing = true;
        return oracle(history, out);
      });
  Result<Session> session = engine->NewSession();
  std::vector<TokenId> came;
  GenerationRequest request;
  request.prompt = kPrompt;
  request.max_new = kNew;
  request.drafting = drafting.get();
  request.on_token = [&](TokenId token) {
    came.push_back(token);
    return true;
  };
  const Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kIo);
  *failing = false;
  Outcome failed;
  failed.tokens = came;
  LookAt(*engine, *session, failed);
  const Outcome expected = Decode(engine, {.max_new = static_cast<int64_t>(came.size())}, nullptr);
  ExpectSame(failed, expected);
}

// Reads by where they begin. While it learns, all of them succeed and are remembered; later others fail.
struct KnownReads {
  std::mutex mutex;
  std::set<std::pair<std::string, uint64_t>> known;
  bool learning = true;
  uint64_t failed = 0;

  Status Fault(const ReadRequest& read) {
    const std::lock_guard lock(mutex);
    const std::pair<std::string, uint64_t> key(read.file->path(), read.offset);
    if (learning) known.insert(key);
    if (known.contains(key)) return {};
    ++failed;
    return Fail(ErrorCode::kIo, read.file->path(), ": made to fail");
  }
};

// An expert that only rows of wrong drafts want may be absent, damaged or on a drive that is gone.
TEST(DraftedFailure, ExpertsThatOnlyWrongDraftsWantNeedNotBeReadable) {
  auto reads = std::make_shared<KnownReads>();
  test::OpenedEngine engine({.model = test::MicroFolder(), .expert_cache = 64u << 10, .prefetch = false},
                            [reads]() -> Result<std::unique_ptr<IoEngine>> {
                              auto io = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 50});
                              io->SetFault([reads](const ReadRequest& read) { return reads->Fault(read); });
                              return io;
                            });
  ASSERT_TRUE(engine.ok());
  const Outcome plain = Decode(engine, {}, nullptr);
  {
    const std::lock_guard lock(reads->mutex);
    reads->learning = false;
  }
  const auto drafting = WithDrafter(*engine, Oracle(WholeText(plain), 2));
  for (int request = 0; request < 2; ++request) {
    const uint64_t failed_before = reads->failed;
    const Outcome drafted = Decode(engine, {}, drafting.get());
    ExpectSame(drafted, plain);
    ASSERT_GT(reads->failed, failed_before) << "the wrong rows want something that the text does not";
    EXPECT_NE(drafted.drafts->given_up.find("made to fail"), std::string::npos) << drafted.drafts->given_up;
    EXPECT_GT(drafted.drafts->by_rows[1].steps, 0u) << "the rest is decoded plainly";
  }
}

// What `--draft auto` does: the plan makes room, n-grams draft a text that repeats itself.
TEST(DraftingForPlan, NgramsDraftARepeatedTextInFewerSteps) {
  test::OpenedEngine engine({.model = test::NanoFolder(), .draft = DraftMode::kAuto});
  ASSERT_TRUE(engine.ok());
  ASSERT_EQ(engine->plan().draft_rows, 8);
  Result<std::unique_ptr<Drafting>> drafting = Drafting::ForPlan(*engine, {});
  ASSERT_TRUE(drafting && *drafting != nullptr);
  // A small model soon repeats itself.
  const Wanted wanted{.max_new = 200};
  const Outcome plain = Decode(engine, wanted, nullptr);
  for (int request = 0; request < 2; ++request) ExpectSame(Decode(engine, wanted, drafting->get()), plain);
}

TEST(DraftingForPlan, WithoutDraftingThereIsNone) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  Result<std::unique_ptr<Drafting>> drafting = Drafting::ForPlan(*engine, {});
  ASSERT_TRUE(drafting);
  EXPECT_EQ(*drafting, nullptr);
}

}  // namespace
}  // namespace deltafin
