// Drafted tokens are rows of one step, of which any number is accepted: what follows is bit for bit what plain decoding
// of the accepted ones gives.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/platform.h"
#include "support/engine_runs.h"

namespace deltafin {
namespace {

const std::vector<TokenId> kPrompt = {17, 65, 161, 161, 135, 152, 5, 117, 141, 197, 109};
const std::vector<TokenId> kNext = {46, 19, 129, 81, 47, 77, 3, 200};

// Bytes of everything that a sequence carries.
std::vector<std::byte> StateBytes(const SequenceState& state) {
  const Bytes kda = state.CurrentKdaBytes();
  std::vector<std::byte> out(kda.begin(), kda.end());
  for (int32_t l = 0; l < static_cast<int32_t>(state.mla_layers()); ++l) {
    const PagedRows rows = state.CurrentMla(l);
    for (int64_t r = 0; r < rows.rows; ++r) {
      const auto* at = reinterpret_cast<const std::byte*>(rows.row(r));
      out.insert(out.end(), at, at + static_cast<size_t>(rows.width) * sizeof(float));
    }
  }
  return out;
}

struct Ran {
  std::vector<float> logits;  // of the tokens that were tried, then of the one after the accepted ones
  std::vector<std::byte> state;
};

// Reads the prompt, tries `tried` tokens, accepts `accepted`, then decodes one more.
Ran TryAndGoOn(Engine& engine, int64_t tried, int64_t accepted, TokenId then) {
  const int64_t vocab = engine.spec().vocab_size;
  Result<Session> session = engine.NewSession();
  Result<KdaReplay> replay = KdaReplay::Create(engine.spec(), 8);
  EXPECT_TRUE(test::AllLogits(engine, *session, kPrompt, {100}));
  Ran ran;
  ran.logits.resize(static_cast<size_t>((tried + 1) * vocab));
  const std::span<const TokenId> tokens = std::span(kNext).first(static_cast<size_t>(tried));
  EXPECT_TRUE(engine.Try(*session, *replay, tokens, Rows(ran.logits.data(), tried, vocab), {}));
  EXPECT_EQ(session->tokens(), kPrompt) << "a step that is tried changes nothing";
  EXPECT_TRUE(engine.Accept(*session, *replay, tokens, accepted));
  EXPECT_EQ(session->length(), static_cast<int64_t>(kPrompt.size()) + accepted);
  ran.state = StateBytes(session->state());
  EXPECT_TRUE(engine.Feed(*session, {&then, 1}, Rows(ran.logits.data() + tried * vocab, 1, vocab), {}));
  return ran;
}

Ran Plain(Engine& engine, int64_t tokens, TokenId then) {
  Result<Session> session = engine.NewSession();
  EXPECT_TRUE(test::AllLogits(engine, *session, kPrompt, {100}));
  std::vector<TokenId> rest(kNext.begin(), kNext.begin() + tokens);
  Ran ran;
  ran.logits = *test::AllLogits(engine, *session, rest, {1});
  ran.state = StateBytes(session->state());
  const std::vector<float> last = *test::AllLogits(engine, *session, {then}, {1});
  ran.logits.insert(ran.logits.end(), last.begin(), last.end());
  return ran;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Case {
  const char* name;
  std::string folder;
  EngineOptions options;
};

class Verify : public testing::TestWithParam<Case> {};

TEST_P(Verify, AnyPrefixOfAnyWidthIsWhatPlainDecodingGives) {
  EngineOptions options = GetParam().options;
  options.model = GetParam().folder;
  test::OpenedEngine engine(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const auto vocab = static_cast<size_t>(engine->spec().vocab_size);
  constexpr TokenId kThen = 91;
  for (int64_t accepted = 1; accepted <= 8; ++accepted) {
    const Ran plain = Plain(*engine, accepted, kThen);
    for (int64_t tried = accepted; tried <= 8; ++tried) {
      SCOPED_TRACE(testing::Message() << tried << " tried, " << accepted << " accepted");
      const Ran ran = TryAndGoOn(*engine, tried, accepted, kThen);
      const std::span<const float> logits = ran.logits, expected = plain.logits;
      const size_t rows = static_cast<size_t>(accepted) * vocab;
      EXPECT_TRUE(SameBits(logits.first(rows), expected.first(rows)));
      EXPECT_TRUE(SameBits(logits.last(vocab), expected.last(vocab)));
      EXPECT_EQ(ran.state, plain.state);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Verify,
                         testing::Values(Case{"Micro", test::MicroFolder(), {}},
                                         Case{"MicroReference", test::MicroFolder(), {.device = "reference"}},
                                         Case{"MicroStreamed", test::MicroFolder(), {.dense_mode = DenseMode::kStream}},
                                         Case{"MicroSmallCache", test::MicroFolder(), {.expert_cache = 64u << 10}},
                                         Case{"Nano", test::NanoFolder(), {}}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// What makes drafting worth its while: an expert that several rows want is read once.
TEST(VerifyReads, AStepReadsTheUnionOfItsRowsExperts) {
  test::OpenedEngine engine({.model = test::NanoFolder(), .expert_cache = 640u << 10, .prefetch = false});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const int64_t vocab = engine->spec().vocab_size;
  Result<Session> session = engine->NewSession();
  Result<KdaReplay> replay = KdaReplay::Create(engine->spec(), 8);
  ASSERT_TRUE(test::AllLogits(*engine, *session, kPrompt, {100}));
  std::vector<float> logits(static_cast<size_t>(8 * vocab));
  for (int64_t rows = 1; rows <= 8; ++rows) {
    const EngineCounters before = engine->counters();
    const uint64_t payload = engine->payload_bytes();
    ASSERT_TRUE(engine->Try(*session, *replay, std::span(kNext).first(static_cast<size_t>(rows)),
                            Rows(logits.data(), rows, vocab), {}));
    const EngineCounters step = engine->counters().Since(before);
    EXPECT_EQ(engine->payload_bytes() - payload, step.expert_bytes_demand);
    EXPECT_LE(step.expert_bytes_demand, step.experts_distinct * step.record_bytes);
    EXPECT_GT(step.expert_bytes_demand, step.experts_distinct * step.record_bytes / 2)
        << "the cache holds next to nothing";
    const auto most =
        static_cast<uint64_t>(rows * engine->spec().num_moe_layers * engine->spec().num_experts_per_token);
    EXPECT_LE(step.experts_distinct, most);
    if (rows >= 4) {
      EXPECT_LT(step.experts_distinct, most) << "rows share experts";
    }
  }
}

// What a measurement begins with does not depend on the ones before it.
TEST(VerifyReads, ForgottenExpertsAreReadAgainAsTheFirstTime) {
  test::OpenedEngine engine({.model = test::NanoFolder(), .expert_cache = 1u << 20, .prefetch = false});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const auto read = [&](const std::vector<TokenId>& tokens) {
    const uint64_t before = engine->payload_bytes();
    Result<Session> session = engine->NewSession();
    EXPECT_TRUE(test::AllLogits(*engine, *session, tokens, {1}));
    return engine->payload_bytes() - before;
  };
  const uint64_t first = read(kPrompt);
  EXPECT_NE(read(kPrompt), first) << "the cache holds and knows some";
  (void)read(kNext);
  ASSERT_TRUE(engine->ForgetExperts());
  EXPECT_EQ(read(kPrompt), first);
}

// Cancels while a pass is computing: when a layer's rows come out.
class CancelsInAPass final : public SessionObserver {
 public:
  void OnLayer(int32_t layer, const ConstRows&) override {
    if (layer != at) return;
    source.Cancel();
    ++reached;
  }
  void OnTokens(std::span<const TokenId>, int64_t, CancelToken) override {}

  CancelSource source;
  int32_t at = -1;  // never
  int reached = 0;
};

// One engine, many steps of any width of which any part is accepted, some of them cancelled before they begin, some
// behind any of their layers, some given up.
TEST(VerifyRandomly, TenThousandStepsEndInTheStateOfPlainDecoding) {
  test::OpenedEngine engine({.model = test::MicroFolder(), .context = 512});
  ASSERT_TRUE(engine.ok());
  const int64_t vocab = engine->spec().vocab_size;
  Result<Session> session = engine->NewSession();
  Result<KdaReplay> replay = KdaReplay::Create(engine->spec(), 8);
  std::vector<float> logits(static_cast<size_t>(8 * vocab));
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  const int steps = kIsSanitized ? 500 : 10000;
  const auto layers = static_cast<int64_t>(engine->spec().layers.size());
  CancelsInAPass watch;
  session->SetObserver(&watch);
  int64_t accepted_in_all = 0, cancelled = 0, cancelled_inside = 0, compared = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t room = session->capacity() - session->length();
    if (room == 0 || below(97) == 0) {
      // The state is that of plain decoding, and of reading everything at once.
      Result<Session> plain = engine->NewSession();
      const std::vector<TokenId> tokens = session->tokens();
      if (!tokens.empty()) {
        ASSERT_TRUE(engine->Feed(*plain, tokens, {}, {}));
      }
      ASSERT_EQ(StateBytes(session->state()), StateBytes(plain->state())) << "after " << step << " steps";
      ++compared;
      if (room == 0 || below(3) == 0) session->Reset();
      continue;
    }
    const int64_t rows = 1 + below(std::min<int64_t>(8, room));
    std::vector<TokenId> tokens(static_cast<size_t>(rows));
    for (TokenId& token : tokens) token = static_cast<TokenId>(below(vocab));
    const bool before = below(10) == 0, inside = !before && below(10) == 0;
    watch.source.Reset();
    if (before) watch.source.Cancel();
    watch.at = inside ? static_cast<int32_t>(below(layers)) : -1;
    const std::vector<std::byte> held = before || inside ? StateBytes(session->state()) : std::vector<std::byte>();
    const int64_t length = session->length();
    const Status tried = engine->Try(*session, *replay, tokens, Rows(logits.data(), rows, vocab), watch.source.token());
    if (!tried) {
      ASSERT_EQ(tried.error().code(), ErrorCode::kCancelled);
      ASSERT_TRUE(before || inside);
      ASSERT_EQ(StateBytes(session->state()), held) << rows << " rows, layer " << watch.at;
      ASSERT_EQ(session->length(), length);
    } else {
      // Behind the last layer nobody may look any more.
      ASSERT_TRUE(!before && (!inside || watch.at == layers - 1)) << "layer " << watch.at;
    }
    cancelled += tried ? 0 : 1;
    cancelled_inside += !tried && inside ? 1 : 0;
    if (!tried || below(6) == 0) continue;  // given up: nothing of it stays
    const int64_t accepted = 1 + below(rows);
    ASSERT_TRUE(engine->Accept(*session, *replay, tokens, accepted));
    accepted_in_all += accepted;
  }
  EXPECT_GT(accepted_in_all, steps);
  EXPECT_GT(cancelled, steps / 10);
  EXPECT_GT(cancelled_inside, steps / 25);
  EXPECT_GE(watch.reached, cancelled_inside) << "layers had been computed";
  EXPECT_GT(compared, steps / 200);
}

}  // namespace
}  // namespace deltafin
