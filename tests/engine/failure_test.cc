// A step that fails or is cancelled leaves the session as it was, and the engine goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

const std::vector<TokenId> kPrompt = {17, 65, 161, 161, 135, 152, 5, 117, 141, 197, 109};
const std::vector<TokenId> kMore = {46, 319, 129, 481, 347};

// An engine whose reads fail while `failing` is set.
struct FaultyEngine {
  std::shared_ptr<std::atomic<bool>> failing = std::make_shared<std::atomic<bool>>(false);
  test::OpenedEngine engine;

  explicit FaultyEngine(EngineOptions options)
      : engine(options, [flag = failing]() -> Result<std::unique_ptr<IoEngine>> {
          auto io = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 50});
          io->SetFault([flag](const ReadRequest& request) -> Status {
            if (!flag->load()) return {};
            return Fail(ErrorCode::kIo, request.file->path(), ": bytes ", request.offset, "+", request.bytes,
                        ": made to fail");
          });
          return io;
        }) {}
};

std::vector<float> Undisturbed(const EngineOptions& options) {
  test::OpenedEngine engine(options);
  Result<Session> session = engine->NewSession();
  EXPECT_TRUE(test::AllLogits(*engine, *session, kPrompt, {100}));
  return *test::AllLogits(*engine, *session, kMore, {1});
}

class FailedRead : public testing::TestWithParam<DenseMode> {};

TEST_P(FailedRead, EndsTheStepWithTheObjectNamedAndTheSessionGoesOn) {
  EngineOptions options{.model = test::MicroFolder(), .dense_mode = GetParam()};
  // A cache at its floor, so that every step reads.
  options.expert_cache = 64u << 10;
  FaultyEngine f(options);
  ASSERT_TRUE(f.engine.ok()) << f.engine.error().message();
  Result<Session> session = f.engine->NewSession();
  ASSERT_TRUE(test::AllLogits(*f.engine, *session, kPrompt, {100}));
  const std::vector<TokenId> before = session->tokens();

  *f.failing = true;
  const Result<std::vector<float>> failed = test::AllLogits(*f.engine, *session, kMore, {1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_NE(failed.error().message().find("made to fail"), std::string::npos) << failed.error().message();
  if (GetParam() == DenseMode::kResident) {
    EXPECT_NE(failed.error().message().find("expert"), std::string::npos) << failed.error().message();
  }
  EXPECT_EQ(session->tokens(), before);

  *f.failing = false;
  const Result<std::vector<float>> again = test::AllLogits(*f.engine, *session, kMore, {1});
  ASSERT_TRUE(again) << again.error().message();
  const std::vector<float> expected = Undisturbed(options);
  EXPECT_EQ(std::memcmp(again->data(), expected.data(), expected.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, FailedRead, testing::Values(DenseMode::kResident, DenseMode::kStream));

TEST(Cancellation, InTheMiddleOfAStepLeavesTheSessionAsItWas) {
  const EngineOptions options{.model = test::MicroFolder(), .expert_cache = 64u << 10};
  test::OpenedEngine engine(options);
  ASSERT_TRUE(engine.ok());
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(test::AllLogits(*engine, *session, kPrompt, {100}));
  // Cancels from inside the step, at each layer in turn.
  class CancelAt final : public ActivationTap {
   public:
    CancelAt(CancelSource& source, int layer)
        : source_(source), name_("layers." + std::to_string(layer) + ".attention") {}
    void OnRows(const std::string& name, const ConstRows&) override {
      if (name == name_) source_.Cancel();
    }
    void OnIds(const std::string&, std::span<const int32_t>, int64_t) override {}

   private:
    CancelSource& source_;
    std::string name_;
  };
  for (int layer = 0; layer < 5; ++layer) {
    CancelSource source;
    CancelAt tap(source, layer);
    const Status status = engine->Feed(*session, kMore, Rows(), source.token(), &tap);
    ASSERT_FALSE(status) << layer;
    EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
    EXPECT_EQ(session->tokens(), kPrompt);
  }
  const Result<std::vector<float>> logits = test::AllLogits(*engine, *session, kMore, {1});
  ASSERT_TRUE(logits);
  const std::vector<float> expected = Undisturbed(options);
  EXPECT_EQ(std::memcmp(logits->data(), expected.data(), expected.size() * sizeof(float)), 0);
}

TEST(Generation, ACancelledAnswerKeepsWhatWasGenerated) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  Result<Session> session = engine->NewSession();
  CancelSource source;
  GenerationRequest request;
  request.prompt = kPrompt;
  request.cancel = source.token();
  int seen = 0;
  request.on_token = [&](TokenId) {
    if (++seen == 3) source.Cancel();
    return true;
  };
  const Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kCancelled);
  EXPECT_EQ(result->tokens.size(), 3u);
  EXPECT_EQ(session->length(), static_cast<int64_t>(kPrompt.size()) + 2);
}

TEST(Generation, StopsAtStopTokensAtTheLimitAndAtTheEndOfTheContext) {
  test::OpenedEngine engine({.model = test::MicroFolder(), .context = 16});
  const auto run = [&](int64_t max_new, std::vector<TokenId> stops) {
    Result<Session> session = engine->NewSession();
    GenerationRequest request;
    request.prompt = kPrompt;
    request.max_new = max_new;
    request.stop_tokens = stops;
    return *Generate(*engine, *session, engine.monitor(), request);
  };
  const GenerationResult limited = run(3, {});
  EXPECT_EQ(limited.tokens.size(), 3u);
  EXPECT_EQ(limited.reason, StopReason::kLength);
  const GenerationResult stopped = run(0, {limited.tokens[1]});
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  EXPECT_EQ(stopped.tokens, (std::vector<TokenId>{limited.tokens[0], limited.tokens[1]}));
  // 11 prompt tokens and 5 more fill the context; the last token need not be read.
  const GenerationResult full = run(0, {});
  EXPECT_EQ(full.tokens.size(), 6u);
  EXPECT_EQ(full.reason, StopReason::kLength);
}

TEST(Feed, RefusesWhatDoesNotFitBeforeAnythingIsRead) {
  test::OpenedEngine engine({.model = test::MicroFolder(), .context = 16});
  Result<Session> session = engine->NewSession();
  const std::vector<TokenId> long_prompt(17, 1);
  const Status too_long = engine->Feed(*session, long_prompt, Rows(), {});
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message().find("--context"), std::string::npos);
  for (const TokenId bad : {-1, 512}) {
    const Status outside = engine->Feed(*session, std::vector<TokenId>{1, bad}, Rows(), {});
    ASSERT_FALSE(outside);
    EXPECT_NE(outside.error().message().find(std::to_string(bad)), std::string::npos);
  }
  EXPECT_EQ(session->length(), 0);
}

}  // namespace
}  // namespace deltafin
