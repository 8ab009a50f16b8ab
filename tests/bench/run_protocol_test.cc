// The protocol with a runner that needs no model: order, what counts, and what voids or ends a run.
#include "bench/run_protocol.h"

#include <gmock/gmock.h>

#include <set>

#include "bench/run_figures.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

// Gives ids 1, 2, 3, ..., one every 10 ms after 100 ms.
BenchRun PlainRun(const RunRequest& request) {
  BenchRun run;
  run.arm = request.arm.name;
  run.prompt = request.prompt.name;
  run.new_tokens = request.new_tokens;
  run.round = request.round;
  for (int64_t i = 1; i <= request.new_tokens; ++i) run.ids.push_back(static_cast<TokenId>(i));
  run.ids_sha256 = IdsSha256(run.ids);
  run.prompt_tokens = static_cast<int64_t>(request.prompt.ids.size());
  run.seconds_first_token = 0.1;
  run.seconds_total = 0.1 + 0.01 * static_cast<double>(request.new_tokens - 1);
  return run;
}

struct Bench {
  ProtocolOptions options;
  std::vector<std::string> order;  // "arm case round"
  BenchResult result;

  explicit Bench(std::vector<std::string> arms, int rounds = 2) {
    for (std::string& name : arms) options.arms.push_back({std::move(name), {}, false});
    options.prompts = {{"p", {7, 8}, "", {3, 5}}};
    options.rounds = rounds;
    options.runner = [](const RunRequest& request) -> Result<BenchRun> { return PlainRun(request); };
  }

  Status Run() {
    const BenchRunner inner = options.runner;
    options.runner = [this, inner](const RunRequest& request) {
      order.push_back(
          Cat(request.arm.name, " ", CaseName(request.prompt.name, request.new_tokens), " ", request.round));
      return inner(request);
    };
    return RunProtocol(options, &result);
  }
};

TEST(ArmOrder, IsABBAForTwoAndPutsEveryArmEverywhereEquallyOften) {
  using Order = std::vector<size_t>;
  EXPECT_EQ(ArmOrder(2, 0), (Order{0, 1}));
  EXPECT_EQ(ArmOrder(2, 1), (Order{1, 0}));
  EXPECT_EQ(ArmOrder(2, 2), (Order{1, 0}));
  EXPECT_EQ(ArmOrder(2, 3), (Order{0, 1}));
  for (const size_t arms : {1u, 2u, 3u, 4u, 5u}) {
    std::map<std::pair<size_t, size_t>, int> seen;  // arm and place
    for (int round = 0; round < static_cast<int>(2 * arms); ++round) {
      const Order order = ArmOrder(arms, round);
      for (size_t place = 0; place < arms; ++place) ++seen[{order[place], place}];
    }
    EXPECT_EQ(seen.size(), arms * arms);
    for (const auto& [where, times] : seen) EXPECT_EQ(times, 2) << arms << " arms";
  }
}

TEST(RunProtocol, WarmsUpUncountedThenTakesTurns) {
  Bench bench({"a", "b"});
  bench.options.warm_ups = 1;
  int cold = 0;
  bench.options.make_cold = [&]() -> Status {
    ++cold;
    return {};
  };
  ASSERT_TRUE(bench.Run());
  EXPECT_EQ(bench.order, (std::vector<std::string>{"a p-3 0", "b p-3 0", "a p-3 1", "b p-3 1", "a p-5 1", "b p-5 1",
                                                   "b p-3 2", "a p-3 2", "b p-5 2", "a p-5 2"}));
  EXPECT_EQ(cold, 10);
  EXPECT_EQ(bench.result.state, BenchState::kComplete);
  const std::vector<CaseFigures> figures = FiguresOf(bench.result);
  ASSERT_EQ(figures.size(), 4u);
  EXPECT_EQ(figures[1].name(), "p-5");
  EXPECT_EQ(figures[1].rounds, (std::vector<int>{1, 2}));
  EXPECT_NEAR(figures[1].steady.values[0], 100, 1e-6);          // 4 tokens in 40 ms
  EXPECT_NEAR(figures[1].inclusive.values[0], 5 / 0.14, 1e-6);  // 5 tokens in 140 ms
}

TEST(RunProtocol, IsVoidedByAChangedTokenAndGivesNoFigures) {
  Bench bench({"a", "b"});
  bench.options.runner = [](const RunRequest& request) -> Result<BenchRun> {
    BenchRun run = PlainRun(request);
    if (request.arm.name == "b" && request.round == 2) {
      run.ids[1] = 99;
      run.ids_sha256 = IdsSha256(run.ids);
    }
    return run;
  };
  ASSERT_TRUE(bench.Run());
  EXPECT_EQ(bench.result.state, BenchState::kVoided);
  EXPECT_EQ(bench.result.reason, "arm b, p-3, round 2: token 2 is 99, it was 2 in arm a, p-5, round 1");
  EXPECT_EQ(bench.order.back(), "b p-3 2");  // nothing is run after it
  EXPECT_TRUE(FiguresOf(bench.result).empty());
}

// A shorter answer is the beginning of a longer one.
TEST(TextCheck, ComparesAnswersOfDifferentLengths) {
  TextCheck check({{"a", {}, false}}, {});
  BenchRun run;
  run.arm = "a";
  run.prompt = "p";
  run.new_tokens = 4;
  run.ids = {1, 2, 3, 4};
  EXPECT_EQ(check.Add(run), "");
  run.new_tokens = 2;
  run.ids = {1, 3};
  EXPECT_THAT(check.Add(run), HasSubstr("token 2 is 3, it was 2"));
  run.prompt = "another";
  EXPECT_EQ(check.Add(run), "");
}

TEST(TextCheck, HoldsAnInexactArmAgainstItselfOnly) {
  TextCheck check({{"a", {}, false}, {"b", {}, true}}, {{"p-2", IdsSha256({1, 2})}});
  BenchRun run;
  run.prompt = "p";
  run.new_tokens = 2;
  const auto add = [&](const char* arm, std::vector<TokenId> ids) {
    run.arm = arm;
    run.ids = std::move(ids);
    run.ids_sha256 = IdsSha256(run.ids);
    return check.Add(run);
  };
  EXPECT_EQ(add("a", {1, 2}), "");
  EXPECT_EQ(add("b", {1, 5}), "");
  EXPECT_EQ(add("b", {1, 5}), "");
  EXPECT_THAT(add("b", {1, 2}), HasSubstr("token 2"));
}

TEST(TextCheck, HoldsExactArmsAgainstWhatIsExpected) {
  TextCheck check({{"a", {}, false}}, {{"p-2", IdsSha256({1, 2})}});
  BenchRun run;
  run.arm = "a";
  run.prompt = "p";
  run.new_tokens = 2;
  run.ids = {1, 3};
  run.ids_sha256 = IdsSha256(run.ids);
  EXPECT_THAT(check.Add(run), HasSubstr("expected ids with SHA-256 " + IdsSha256({1, 2})));
}

TEST(TextCheck, SeesATextThatChangedWithoutItsIds) {
  TextCheck check({{"a", {}, false}}, {});
  BenchRun run;
  run.arm = "a";
  run.prompt = "p";
  run.new_tokens = 1;
  run.ids = {1};
  run.text_sha256 = "11";
  EXPECT_EQ(check.Add(run), "");
  run.text_sha256 = "22";
  EXPECT_THAT(check.Add(run), HasSubstr("text of the same ids changed"));
}

TEST(RunProtocol, LeavesAMarkedPartWhenARunFails) {
  Bench bench({"a"});
  bench.options.runner = [](const RunRequest& request) -> Result<BenchRun> {
    if (request.round == 2) return Fail(ErrorCode::kIo, "the run ended with exit code 5: drive gone");
    return PlainRun(request);
  };
  const Status ran = bench.Run();
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code(), ErrorCode::kIo);
  EXPECT_EQ(ran.error().message(), "arm a, p-3, round 2 of 2: the run ended with exit code 5: drive gone");
  EXPECT_EQ(bench.result.state, BenchState::kPartial);
  EXPECT_EQ(bench.result.reason, ran.error().message());
  EXPECT_EQ(bench.result.runs.size(), 2u);
  EXPECT_EQ(FiguresOf(bench.result).size(), 2u);
}

TEST(RunProtocol, StopsWhereItIsInterrupted) {
  Bench bench({"a"});
  CancelSource source;
  bench.options.cancel = source.token();
  bench.options.after_run = [&](const BenchResult& so_far) {
    if (so_far.runs.size() == 3) source.Cancel();
  };
  const Status ran = bench.Run();
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(bench.result.state, BenchState::kPartial);
  EXPECT_EQ(bench.result.runs.size(), 3u);
}

TEST(RunProtocol, RefusesAnAnswerOfAnotherLength) {
  Bench bench({"a"});
  bench.options.runner = [](const RunRequest& request) -> Result<BenchRun> {
    BenchRun run = PlainRun(request);
    run.ids.pop_back();
    return run;
  };
  const Status ran = bench.Run();
  ASSERT_FALSE(ran);
  EXPECT_THAT(ran.error().message(), HasSubstr("expected 3 new tokens after 2, got 2 after 2"));
}

TEST(RunProtocol, RefusesPlansThatMakeNoSense) {
  const auto message = [](auto change) {
    Bench bench({"a", "b"});
    change(bench.options);
    const Status checked = CheckProtocol(bench.options);
    return checked ? std::string() : checked.error().message();
  };
  EXPECT_EQ(message([](ProtocolOptions&) {}), "");
  EXPECT_THAT(message([](ProtocolOptions& o) { o.arms[1].name = "a"; }), HasSubstr("given twice"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.arms[1].name = ""; }), HasSubstr("NAME"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.prompts[0].lengths = {3, 3}; }), HasSubstr("p-3"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.prompts[0].lengths = {}; }), HasSubstr("length"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.prompts[0].ids = {}; }), HasSubstr("some text"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.expected["q-3"] = ""; }), HasSubstr("q-3"));
  EXPECT_THAT(message([](ProtocolOptions& o) { o.rounds = 0; }), HasSubstr("round"));
}

// What the engine names is looked up once it ran; bytes counted for fewer devices before that say nothing.
TEST(RunProtocol, ForgetsCountsOfAnotherListOfDevices) {
  Bench bench({"a"}, 1);
  bench.options.warm_ups = 1;
  bench.options.find_devices = [](const std::vector<OwnDrive>& drives) {
    return std::vector<BenchDevice>(1 + drives.size());
  };
  bench.options.runner = [](const RunRequest& request) -> Result<BenchRun> {
    BenchRun run = PlainRun(request);
    run.own_drives = {{"/mnt/a", 5, 1}};
    run.kernel_bytes.assign(request.devices.size(), 5);
    return run;
  };
  ASSERT_TRUE(bench.Run());
  EXPECT_TRUE(bench.result.runs[0].kernel_bytes.empty());
  EXPECT_EQ(bench.result.runs[1].kernel_bytes.size(), 2u);
}

}  // namespace
}  // namespace deltafin
