// Reports of a result, and what bench compare makes of two of them.
#include "bench/run_report.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "bench/svg_plot.h"

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Two arms of three rounds; arm b answers in 1/speed of the time; names that want escaping.
BenchResult MakeResult(double speed = 1.25, const std::string& started = "2026-01-01T00:00:00Z") {
  BenchResult r;
  r.state = BenchState::kComplete;
  r.started = started;
  r.command = "deltafin bench run --model 'a<b>'";
  r.model = "a<b>";
  r.model_sha256 = "abc";
  r.rounds = 3;
  r.arms = {{"a", {"--draft", "off"}, false}, {"b", {}, false}};
  r.prompts = {{"essay", {1, 2, 3}, IdsSha256({1, 2, 3}), {2, 11}}};
  r.devices = {{"nvme0", "Disk & Co", "xfs", "/", {"/m"}, "/sys/x"}};
  r.machine.processor = "Chip";
  r.machine.processors = 4;
  for (int round = 1; round <= 3; ++round)
    for (const bool b : {false, true})
      for (const int64_t length : {2, 11}) {
        BenchRun run;
        run.arm = b ? "b" : "a";
        run.prompt = "essay";
        run.new_tokens = length;
        run.round = round;
        for (int64_t i = 0; i < length; ++i) run.ids.push_back(static_cast<TokenId>(i));
        run.ids_sha256 = IdsSha256(run.ids);
        run.prompt_tokens = 3;
        const double unit = 0.1 * (1 + 0.01 * round) / (b ? speed : 1);  // seconds a token, 1 % slower each round
        run.seconds_first_token = 5 * unit;
        run.seconds_total = run.seconds_first_token + unit * static_cast<double>(length - 1);
        run.seconds_process = run.seconds_total + 1;
        run.own_bytes = 1'000'000'000;
        run.kernel_bytes = {1'020'000'000};
        for (int i = 0; i <= 50; ++i)
          run.samples.push_back({run.seconds_process * i / 50, {static_cast<uint64_t>(i) * 20'400'000}});
        run.time = {{"waiting for experts", unit, unit * 4}, {"head", 0.01, 0.02}};
        run.other_processor_seconds = 0;
        run.stolen_seconds = 0;
        run.engine = "cpu";
        r.runs.push_back(run);
      }
  return r;
}

BenchFile Parsed(const BenchResult& result, const std::string& name = "A.json") {
  const auto file = ParseBenchFile(DumpJson(ResultToJson(result)), name);
  return file ? *file : BenchFile{};
}

TEST(ResultJson, HoldsFiguresOfCountedRunsAndReadsBack) {
  const Json json = ResultToJson(MakeResult());
  EXPECT_EQ(json["state"], "complete");
  ASSERT_EQ(json["results"].size(), 4u);
  const Json& first = json["results"][1];  // arm a, 11 tokens
  EXPECT_EQ(first["new_tokens"], 11);
  EXPECT_NEAR(first["tokens_per_second_steady"]["median"].get<double>(), 1 / 0.102, 1e-9);
  EXPECT_NEAR(first["tokens_per_second_inclusive"]["max"].get<double>(), 11 / (15 * 0.101), 1e-9);
  EXPECT_NEAR(first["kernel_over_device_bytes"].get<double>(), 1.02, 1e-9);
  EXPECT_EQ(json["curves"].size(), 4u);
  EXPECT_EQ(json["runs"].size(), 12u);
  const BenchFile back = Parsed(MakeResult());
  ASSERT_EQ(back.figures.size(), 4u);
  EXPECT_THAT(back.figures[1].rounds, ElementsAre(1, 2, 3));
  EXPECT_NEAR(back.figures[1].steady.values[2], 1 / 0.103, 1e-9);
  EXPECT_EQ(back.prompt_sha256.at("essay"), IdsSha256({1, 2, 3}));
  EXPECT_EQ(back.machine.processor, "Chip");
}

TEST(ResultJson, OfAVoidedResultHasNoFigures) {
  BenchResult r = MakeResult();
  r.state = BenchState::kVoided;
  r.reason = "token 2 is 99";
  const Json json = ResultToJson(r);
  EXPECT_EQ(json["state"], "voided");
  EXPECT_EQ(json["reason"], "token 2 is 99");
  EXPECT_TRUE(json["results"].empty());
  EXPECT_EQ(json["runs"].size(), 12u);
  for (const std::string& text : {ResultMarkdown(r), ResultHtml(r)}) {
    EXPECT_THAT(text, HasSubstr("token 2 is 99"));
    EXPECT_THAT(text, HasSubstr("o number of this run counts"));
    EXPECT_THAT(text, Not(HasSubstr("own bytes")));
  }
}

TEST(ResultJson, RefusesWhatIsNone) {
  for (const char* text :
       {"", "7", "[]", "{}", R"({"format":"deltafin-bench-run"})", R"({"format":"deltafin-bench-run","version":2})",
        R"({"format":"deltafin-bench-run","version":1,"results":[{}]})",
        R"({"format":"deltafin-bench-run","version":1,"results":[{"prompt":"p","rounds":[1],)"
        R"("tokens_per_second_inclusive":{"values":[1,2]}}]})",
        R"({"format":"deltafin-bench-run","version":1,"results":[{"prompt":"p","rounds":[1],)"
        R"("tokens_per_second_inclusive":{"values":[-1]}}]})"})
    EXPECT_FALSE(ParseBenchFile(text, "f")) << text;
  EXPECT_TRUE(ParseBenchFile(R"({"format":"deltafin-bench-run","version":1,"state":"partial"})", "f"));
  const auto altered = [](auto change) {
    Json json = ResultToJson(MakeResult());
    change(json);
    return ParseBenchFile(DumpJson(json), "f").has_value();
  };
  EXPECT_TRUE(altered([](Json&) {}));
  EXPECT_FALSE(altered([](Json& j) { j["state"] = "banana"; }));
  EXPECT_FALSE(altered([](Json& j) { j["results"][1]["tokens_per_second_steady"]["values"] = Json::array(); }));
  EXPECT_FALSE(altered([](Json& j) { j["results"][1]["tokens_per_second_inclusive"]["median"] = 1000; }));
}

TEST(ResultHtml, AsksNothingOfANetworkAndEscapesNames) {
  const std::string html = ResultHtml(MakeResult());
  for (const char* foreign : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_THAT(html, Not(HasSubstr(foreign)));
  EXPECT_THAT(html, HasSubstr("a&lt;b&gt;"));
  EXPECT_THAT(html, HasSubstr("Disk &amp; Co"));
  EXPECT_THAT(html, Not(HasSubstr("a<b>")));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  size_t plots = 0;
  for (size_t at = 0; (at = html.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 5u);  // rates; decoding and prompt; draw of each arm's longest answer
}

// A result may come from anybody.
TEST(Compare, PrintsNothingThatATerminalOrAPageObeys) {
  Json json = ResultToJson(MakeResult(1, "2026-02-02T00:00:00Z"));
  json["machine"]["system"] = "x\x1b[31m\n<img src=x onerror=y>";
  const auto foreign = ParseBenchFile(DumpJson(json), "B.json");
  ASSERT_TRUE(foreign);
  const auto c = CompareResults(Parsed(MakeResult()), *foreign, "a", "a");
  ASSERT_TRUE(c) << c.error().message();
  const std::string text = ComparisonMarkdown(*c);
  EXPECT_THAT(text, HasSubstr("&lt;img"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("<img")));
}

TEST(ResultReports, SayHowTheyCountLoadingAndWhatAnswersWereComparedWith) {
  BenchResult r = MakeResult();
  r.answers = "compared with nothing from outside";
  BenchRun run;
  run.ids = {1, 2, 3};
  run.seconds_load = 0.5;
  run.seconds_total = 1;
  EXPECT_DOUBLE_EQ(run.inclusive_with_load(), 2);
  EXPECT_DOUBLE_EQ(run.inclusive(), 3);
  EXPECT_TRUE(ResultToJson(r)["results"][0].contains("tokens_per_second_inclusive_with_load"));
  EXPECT_EQ(ResultToJson(r)["protocol"]["answers"], r.answers);
  for (const std::string& text : {ResultMarkdown(r), ResultHtml(r)}) {
    EXPECT_THAT(text, HasSubstr("with load tokens/s"));
    EXPECT_THAT(text, HasSubstr(r.answers));
  }
}

TEST(ResultMarkdown, HasARowForEachCase) {
  const std::string text = ResultMarkdown(MakeResult());
  EXPECT_THAT(text, HasSubstr("| a | essay (3) | 11 | 3 | 9.8 (9.71-9.9) | 7.19 (7.12-7.26) | 7.19 (7.12-7.26) |"));
  EXPECT_THAT(text, HasSubstr("| 1.00 GB | 1.02 GB (1.020) |"));
}

TEST(WarningsOf, NamesWhatElseRanAndWhatIsNotBalanced) {
  BenchResult r = MakeResult();
  EXPECT_THAT(WarningsOf(r), ElementsAre(HasSubstr("not balanced")));  // three rounds of two arms
  r.rounds = 4;
  EXPECT_THAT(WarningsOf(r), ElementsAre());
  for (BenchRun& run : r.runs) run.other_processor_seconds = run.seconds_process * 4 * 0.2;
  r.machine.governor = "powersave";
  r.load_average_start = 3;
  for (BenchRun& run : r.runs) run.kernel_bytes = {3'000'000'000};
  EXPECT_THAT(WarningsOf(r), ElementsAre(HasSubstr("other programs used 20 %"), HasSubstr("load average was 3.0"),
                                         HasSubstr("something else was reading"), HasSubstr("powersave")));
  // Also where runs are as small as those of k3-nano.
  for (BenchRun& run : r.runs) run.own_bytes = 40'000'000, run.kernel_bytes = {60'000'000};
  EXPECT_THAT(WarningsOf(r), testing::Contains(HasSubstr("something else was reading")));
  for (BenchRun& run : r.runs) run.kernel_bytes = {45'000'000};
  EXPECT_THAT(WarningsOf(r), Not(testing::Contains(HasSubstr("something else was reading"))));
  for (BenchRun& run : r.runs) run.own_bytes = 1'000'000'000, run.kernel_bytes = {0};
  EXPECT_THAT(WarningsOf(r), testing::Contains(HasSubstr("came from memory")));
}

TEST(Compare, OfTwoArmsOfOneRunGoesRoundByRound) {
  const BenchFile file = Parsed(MakeResult(1.25));
  const auto c = CompareResults(file, file, "a", "b");
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_TRUE(c->paired);
  ASSERT_EQ(c->cases.size(), 2u);
  EXPECT_NEAR(c->cases[1].steady.ratio.ratio, 1.25, 1e-9);
  EXPECT_NEAR(c->cases[1].steady.ratio.low, 1.25, 1e-6);  // every round has the same ratio
  EXPECT_NEAR(c->mean_ratio, 1.25, 1e-9);
  EXPECT_EQ(c->faster, 2);
  EXPECT_NEAR(c->sign_probability, 0.5, 1e-12);
  EXPECT_THAT(ComparisonMarkdown(*c), HasSubstr("1.250 (1.250-1.250) | B faster"));
  EXPECT_EQ(ComparisonToJson(*c)["cases"][1]["new_tokens"], 11);
}

TEST(Compare, OfTwoRunsHasAnIntervalAroundTheRatio) {
  const BenchFile a = Parsed(MakeResult(1.25), "A.json"),
                  b = Parsed(MakeResult(1.25, "2026-02-02T00:00:00Z"), "B.json");
  const auto c = CompareResults(a, b, "a", "a");
  ASSERT_TRUE(c);
  EXPECT_FALSE(c->paired);
  EXPECT_NEAR(c->cases[0].inclusive.ratio.ratio, 1, 1e-9);
  EXPECT_LT(c->cases[0].inclusive.ratio.low, 1);
  EXPECT_GT(c->cases[0].inclusive.ratio.high, 1);
  EXPECT_THAT(ComparisonMarkdown(*c), HasSubstr("no difference shown"));
}

TEST(Compare, SaysWhatDiffers) {
  BenchResult other = MakeResult(1, "2026-02-02T00:00:00Z");
  other.machine.processor = "Another chip";
  for (BenchRun& run : other.runs)
    if (run.new_tokens == 11) run.ids_sha256 = std::string(64, '0');
  other.state = BenchState::kPartial;
  other.reason = "interrupted";
  const auto c = CompareResults(Parsed(MakeResult()), Parsed(other, "B.json"), "a", "a");
  ASSERT_TRUE(c);
  EXPECT_THAT(c->notes,
              testing::IsSupersetOf({HasSubstr("B.json is partial: interrupted"), HasSubstr("Chip and Another chip"),
                                     HasSubstr("essay-11: the answers differ")}));
  EXPECT_TRUE(c->cases[0].same_ids);
  EXPECT_FALSE(c->cases[1].same_ids);
}

TEST(Compare, RefusesWhatDoesNotCompare) {
  const BenchFile a = Parsed(MakeResult());
  const auto message = [&](auto change, const std::string& arm_a = "a", const std::string& arm_b = "a") {
    BenchResult other = MakeResult();
    change(other);
    const auto c = CompareResults(a, Parsed(other, "B.json"), arm_a, arm_b);
    return c ? std::string() : c.error().message();
  };
  const auto same = [](BenchResult&) {};
  EXPECT_EQ(message(same), "");
  EXPECT_THAT(message([](BenchResult& r) { r.state = BenchState::kVoided; }), HasSubstr("B.json: is voided"));
  EXPECT_THAT(message([](BenchResult& r) { r.model_sha256 = "other"; }), HasSubstr("two models"));
  EXPECT_THAT(message([](BenchResult& r) { r.prompts[0].ids_sha256 = "other"; }),
              HasSubstr("no prompt and length in common"));
  EXPECT_THAT(message(same, ""), HasSubstr("has the arms a, b: choose one with --arm-a"));
  EXPECT_THAT(message(same, "a", "c"), HasSubstr("--arm-b c"));
}

TEST(ShortNumber, HasThreeDigits) {
  EXPECT_EQ(ShortNumber(0.12345), "0.123");
  EXPECT_EQ(ShortNumber(9.876), "9.88");
  EXPECT_EQ(ShortNumber(26.14), "26.1");
  EXPECT_EQ(ShortNumber(1234567), "1,234,567");
  EXPECT_EQ(ShortNumber(2), "2");
  EXPECT_EQ(ShortNumber(0), "0");
}

// Whatever the figures are, an axis ends and nothing is written that is no number.
TEST(ToSvg, SurvivesOddFigures) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), huge = 1e300;
  for (const double value : {0.0, nan, huge, -1.0, 1e-300}) {
    const std::string svg = ToSvg(CurvePlot{"l", "s", "GB/s", {{"c", {{0, value}, {value, 1}}}}, {{value, "m"}}}) +
                            ToSvg(StackPlot{"l", "s", {"p"}, {{"b", {value}}}}) +
                            ToSvg(IntervalPlot{"l", "s", {"c"}, {{"n", false, 0, {{value, value, value}}}}});
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_LT(svg.size(), 100000u);
  }
}

}  // namespace
}  // namespace deltafin
