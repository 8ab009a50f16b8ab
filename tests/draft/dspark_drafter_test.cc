// The small example of the specification of drafting, part A.9, within its tolerances, and how a context follows a
// session.
#include "draft/dspark_drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "small_dspark.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr float kTolerance = 0.05f, kLogitTolerance = 0.07f;

// A drafter over the example, on one backend.
class Example {
 public:
  explicit Example(const char* device = "reference", int64_t context = 200,
                   const std::vector<test::SmallTensor>& tensors = test::SmallTensors()) {
    test::WriteSmallDspark(folder_.path(), test::SmallConfig(), tensors);
    weights_ = std::move(*DsparkWeights::Open(folder_.path(), test::SmallTarget()));
    DFIN_CHECK(weights_.Load({}).has_value(), "the example can be read");
    const BackendOptions options{.device = device, .isa = "auto", .threads = 2};
    backend = std::string(device) == "cpu" ? std::move(*CreateCpuBackend(options))
                                           : std::move(*CreateReferenceBackend(options));
    DFIN_CHECK(backend->Reserve(DsparkDrafter::Workspace(weights_.config())).has_value(), "memory");
    drafter = std::move(*DsparkDrafter::Create(
        weights_, *backend, tables, {.context = context, .pass_rows = 150, .usable_vocab = 0}, test::kSmallBlock));
  }

  // A pass over `rows` of the taps, [n, 32], as the session's tokens from `before` on.
  void Pass(std::vector<TokenId>& session, const std::vector<TokenId>& tokens, const float* rows, int64_t extra = 0) {
    const auto count = static_cast<int64_t>(tokens.size());
    const ConstRows taps(rows, count + extra, 2 * test::kSmallHidden);
    for (int32_t layer = 0; layer < 4; ++layer)
      drafter->OnLayer(layer, taps.Columns(layer == 2 ? test::kSmallHidden : 0, test::kSmallHidden));
    session.insert(session.end(), tokens.begin(), tokens.end());
    drafter->OnTokens(session, count, {});
  }

  test::SmallTables tables;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DsparkDrafter> drafter;

 private:
  test::TempFolder folder_;
  DsparkWeights weights_;
};

void ExpectNear(const float* got, const std::vector<float>& expected, float tolerance, const char* what) {
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << what << " " << i;
}

TEST(SmallExample, IsWhatTheGeneratorMakes) {
  EXPECT_EQ(test::SplitMix(0), 0xE220A8397B1DCDAFu);
  EXPECT_NEAR(test::SmallUniform(0, 0), 0.383310795, 1e-9);
  EXPECT_NEAR(test::SmallUniform(0, 1), 0.066561520, 1e-9);
  const std::vector<test::SmallTensor> tensors = test::SmallTensors();
  ASSERT_EQ(tensors.size(), 32u);
  EXPECT_EQ(tensors[0].name, "confidence_head.proj.bias");
  EXPECT_EQ(tensors[3].name, "context_proj.weight");
  EXPECT_EQ(tensors[18].name, "layers.1.input_layernorm.weight");
  EXPECT_EQ(tensors[31].name, "markov_head.markov_w2.weight");
  std::vector<float> first;
  for (size_t i = 0; i < 4; ++i) first.push_back(Bf16ToFloat(tensors[3].values[i]));
  ExpectNear(first.data(), {-0.13379f, 0.0028381f, -0.32617f, -0.24707f}, 1e-5f, "context_proj");
  ExpectNear(test::SmallContext().data(), {0.41016f, -0.32422f, 0.66016f, -0.35156f}, 1e-5f, "context");
  ExpectNear(test::SmallTables().head.data(), {0.36719f, -0.16504f, 0.36719f, 0.14062f}, 1e-5f, "head");
}

class Device : public testing::TestWithParam<const char*> {};

TEST_P(Device, TheExampleGivesTheExpectedLatentsAndTokens) {
  Example e(GetParam());
  std::vector<TokenId> session;
  e.Pass(session, {1, 2, 3}, test::SmallContext().data());
  const ConstRows first = e.drafter->Context(0), second = e.drafter->Context(1);
  ExpectNear(first.row(2), {0.46875f, -0.85938f, 0.21582f, 1.9609f, 0.65625f, 1.2578f, -0.75391f, -0.4082f}, kTolerance,
             "latent 0.2");
  ExpectNear(first.row(2) + 8, {0.37109f, -0.70703f, 0.5625f, -0.60156f}, kTolerance, "key 0.2");
  ExpectNear(second.row(0), {-0.14844f, 1.2656f, -0.047119f, -0.3125f, 2.375f, 0.13086f, 0.0041504f, 0.80469f},
             kTolerance, "latent 1.0");
  ExpectNear(second.row(1) + 8, {-0.83984f, 1.3984f, -1.1719f, 1.5312f}, kTolerance, "key 1.1");

  std::vector<TokenId> history = session, out(4);
  history.push_back(14);
  const Result<Proposal> proposal = e.drafter->Propose(history, out);
  ASSERT_TRUE(proposal);
  ASSERT_EQ(proposal->count, 4);
  EXPECT_EQ(out, (std::vector<TokenId>{5, 20, 0, 20}));
  const ConstRows h = e.drafter->block_output();
  ExpectNear(h.row(0),
             {-1.3594f, 0.14453f, 0.76562f, 1.4375f, 0.16406f, -0.73438f, 1.3438f, 0.18652f, -0.075684f, 2.2031f,
              1.0391f, -0.55078f, -1.2109f, -0.44922f, 0.71094f, 1.4375f},
             kTolerance, "h 0");
  ExpectNear(h.row(3),
             {-0.097656f, 0.37305f, 1.1562f, 0.60938f, 1.1328f, 0.06543f, 1.4922f, 0.24805f, 1.125f, 1.9844f, -0.33984f,
              -0.53906f, -2.0312f, -0.75391f, -0.42773f, -0.26758f},
             kTolerance, "h 3");
  ExpectNear(e.tables.base_logits.data(), {0.44902f, -0.62313f, -1.0447f, 0.1735f, 2.2579f, 2.1043f}, kLogitTolerance,
             "logits");
  const float confidence[] = {0.40686f, 0.40592f, 0.30322f, 0.31237f};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(proposal->belief[k], confidence[k], 0.02f) << k;
  // Without the correction from the token before, others would be the likeliest.
  for (int64_t k = 0; k < 4; ++k) {
    const float* row = e.tables.base_logits.data() + k * test::kSmallVocab;
    EXPECT_EQ(std::max_element(row, row + test::kSmallVocab) - row, k == 0 ? 14 : 20) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Device, testing::Values("reference", "cpu"));

std::vector<float> RandomTaps(int64_t rows) {
  std::vector<float> out;
  for (int64_t e = 0; e < rows * 2 * test::kSmallHidden; ++e)
    out.push_back(static_cast<float>(4 * test::SmallUniform(77, static_cast<uint64_t>(e))));
  return out;
}

std::vector<TokenId> RandomTokens(int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<TokenId>(test::SplitMix(static_cast<uint64_t>(i)) % 30));
  return out;
}

std::vector<float> ContextFloats(const DsparkDrafter& drafter) {
  std::vector<float> out;
  for (int64_t l = 0; l < 2; ++l)
    for (int64_t r = 0; r < drafter.length(); ++r)
      out.insert(out.end(), drafter.Context(l).row(r), drafter.Context(l).row(r) + 12);
  return out;
}

TEST(Context, IsTheSameHoweverTheRowsAreCut) {
  const std::vector<float> taps = RandomTaps(140);
  const std::vector<TokenId> tokens = RandomTokens(140);
  std::vector<float> expected;
  for (const int64_t piece : {140, 1, 7, 63, 64, 65}) {
    Example e("cpu");
    std::vector<TokenId> session;
    for (int64_t at = 0; at < 140; at += piece) {
      const int64_t count = std::min<int64_t>(piece, 140 - at);
      e.Pass(session, {tokens.begin() + at, tokens.begin() + at + count}, taps.data() + at * 32);
    }
    ASSERT_EQ(e.drafter->length(), 140);
    const std::vector<float> got = ContextFloats(*e.drafter);
    if (expected.empty()) expected = got;
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)), 0) << piece;
  }
}

TEST(Context, RowsThatWereNotAcceptedAreNoPartOfIt) {
  const std::vector<float> taps = RandomTaps(20);
  Example all("cpu"), part("cpu");
  std::vector<TokenId> a, b;
  all.Pass(a, {1, 2, 3, 4}, taps.data());
  part.Pass(b, {1, 2, 3}, taps.data(), /*extra=*/5);
  part.Pass(b, {4}, taps.data() + 3 * 32);
  EXPECT_EQ(ContextFloats(*all.drafter), ContextFloats(*part.drafter));
}

TEST(Proposing, ChangesNothingAndAShorterOneIsTheBeginningOfALongerOne) {
  Example e("cpu");
  std::vector<TokenId> session;
  const std::vector<float> taps = RandomTaps(20);
  e.Pass(session, RandomTokens(20), taps.data());
  const std::vector<float> before = ContextFloats(*e.drafter);
  std::vector<TokenId> history = session, longest(4);
  history.push_back(9);
  ASSERT_TRUE(e.drafter->Propose(history, longest));
  for (size_t most = 1; most <= 4; ++most) {
    std::vector<TokenId> out(most);
    const Result<Proposal> proposal = e.drafter->Propose(history, out);
    ASSERT_TRUE(proposal);
    EXPECT_EQ(proposal->count, static_cast<int64_t>(most));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), longest.begin()));
  }
  EXPECT_EQ(ContextFloats(*e.drafter), before);
}

TEST(Proposing, NeverProposesTheMaskNorUnusableIds) {
  Example e("cpu");
  std::vector<TokenId> session;
  const std::vector<float> taps = RandomTaps(30);
  const std::vector<TokenId> tokens = RandomTokens(30);
  for (int64_t at = 0; at < 30; ++at) {
    e.Pass(session, {tokens[static_cast<size_t>(at)]}, taps.data() + at * 32);
    std::vector<TokenId> history = session, out(4);
    history.push_back(9);
    ASSERT_TRUE(e.drafter->Propose(history, out));
    for (const TokenId id : out) EXPECT_TRUE(id >= 0 && id < 32 && id != 30) << id;
  }
}

// How many tokens it proposes behind `session`.
int64_t Proposed(Example& e, std::vector<TokenId> session) {
  std::vector<TokenId> out(4);
  session.push_back(9);
  const Result<Proposal> proposal = e.drafter->Propose(session, out);
  EXPECT_TRUE(proposal);
  return proposal->count;
}

TEST(Following, ASessionThatGoesBackIsFollowed) {
  Example e("cpu"), straight("cpu");
  const std::vector<float> taps = RandomTaps(20);
  std::vector<TokenId> session, other;
  e.Pass(session, {1, 2, 3, 4, 5, 6}, taps.data());
  session.resize(4);
  e.Pass(session, {8, 9}, taps.data() + 10 * 32);
  straight.Pass(other, {1, 2, 3, 4}, taps.data());
  straight.Pass(other, {8, 9}, taps.data() + 10 * 32);
  EXPECT_EQ(ContextFloats(*e.drafter), ContextFloats(*straight.drafter));
  EXPECT_EQ(Proposed(e, session), 4);
}

TEST(Following, ASessionThatBeginsInTheMiddleIsNotDraftedUntilItBeginsAnew) {
  Example e("cpu");
  const std::vector<float> taps = RandomTaps(20);
  std::vector<TokenId> session = {7, 7, 7};  // read before anybody watched
  e.Pass(session, {1, 2}, taps.data());
  EXPECT_EQ(Proposed(e, session), 0);
  session.clear();
  e.Pass(session, {1, 2}, taps.data());
  EXPECT_EQ(Proposed(e, session), 4);
  EXPECT_EQ(Proposed(e, {1, 3}), 0) << "another session than the one that was followed";
}

TEST(Following, APassThatIsGivenUpLeavesItBehind) {
  Example e("cpu");
  const std::vector<float> taps = RandomTaps(20);
  std::vector<TokenId> session;
  e.Pass(session, {1, 2}, taps.data());
  CancelSource cancel;
  cancel.Cancel();
  session.push_back(3);
  e.drafter->OnTokens(session, 1, cancel.token());
  EXPECT_EQ(e.drafter->length(), 2);
  EXPECT_EQ(Proposed(e, session), 0);
  EXPECT_NE(e.drafter->silence(), "");
}

TEST(Following, BeyondItsLimitAContextIsDroppedForGood) {
  Example e("cpu", /*context=*/10);
  const std::vector<float> taps = RandomTaps(20);
  std::vector<TokenId> session;
  e.Pass(session, RandomTokens(10), taps.data());
  EXPECT_EQ(Proposed(e, session), 4);
  e.Pass(session, {4}, taps.data());
  EXPECT_EQ(Proposed(e, session), 0);
  EXPECT_EQ(e.drafter->length(), 0);
  // A new one is followed from its first row on.
  session.clear();
  e.Pass(session, {4}, taps.data() + 7 * 32);
  EXPECT_EQ(Proposed(e, session), 4);
  Example fresh("cpu", /*context=*/10);
  std::vector<TokenId> same;
  fresh.Pass(same, {4}, taps.data() + 7 * 32);
  EXPECT_EQ(ContextFloats(*e.drafter), ContextFloats(*fresh.drafter));
}

TEST(Faults, OfTheTargetAndNumbersThatAreNoneAreErrors) {
  Example e("cpu");
  std::vector<float> taps = RandomTaps(4);
  std::vector<TokenId> session, out(4);
  e.Pass(session, {1, 2}, taps.data());
  const std::vector<TokenId> history = {1, 2, 9};
  e.tables.fails = true;
  EXPECT_FALSE(e.drafter->Propose(history, out));
  e.tables.fails = false;
  EXPECT_TRUE(e.drafter->Propose(history, out));
  e.tables.head[5] = NAN;
  const Result<Proposal> broken = e.drafter->Propose(history, out);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.drafter->length(), 0) << "nothing of it is trusted any more";
}

// One row that is none would be in every later proposal of the conversation.
TEST(Faults, ARowOfTheModelThatIsNoneDropsTheContextUntilTheSessionBeginsAnew) {
  Example e("cpu");
  const std::vector<float> good = RandomTaps(8);
  std::vector<float> taps = good;
  taps[5 * 32 + 3] = NAN;
  std::vector<TokenId> session, out(4);
  e.Pass(session, {1, 2, 3, 4}, taps.data());
  e.Pass(session, {5, 6, 7}, taps.data() + 4 * 32);
  EXPECT_EQ(e.drafter->length(), 0);
  for (int asked = 0; asked < 2; ++asked) {
    std::vector<TokenId> history = session;
    history.push_back(9);
    const Result<Proposal> broken = e.drafter->Propose(history, out);
    ASSERT_FALSE(broken);
    EXPECT_EQ(broken.error().code(), ErrorCode::kCorrupt);
    e.Pass(session, {8}, good.data());
  }
  session.clear();
  e.Pass(session, {1, 2}, good.data());
  EXPECT_EQ(Proposed(e, session), 4);
}

TEST(Faults, AConfidenceThatIsNoneIsAnError) {
  std::vector<test::SmallTensor> tensors = test::SmallTensors();
  ASSERT_EQ(tensors[0].name, "confidence_head.proj.bias");
  tensors[0].values[0] = FloatToBf16(NAN);
  Example e("cpu", 200, tensors);
  std::vector<TokenId> session, out(4);
  e.Pass(session, {1, 2}, RandomTaps(2).data());
  EXPECT_FALSE(e.drafter->Propose(std::vector<TokenId>{1, 2, 9}, out));
}

}  // namespace
}  // namespace deltafin
