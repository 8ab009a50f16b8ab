// Plans: memory is split as promised, more of anything never hurts, and impossible machines are refused with a number.
#include "simulate/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "k3_shape.h"
#include "simulate/plan_chart.h"
#include "simulate/published_rig.h"

namespace deltafin::simulate {
namespace {

using testing::HasSubstr;

PlanRequest Reference() {
  PlanRequest request;
  request.shape = test::K3Shape();
  request.machine = ReferenceRig(4);
  request.prompt_tokens = 64;
  return request;
}

TEST(Planner, TheShapeIsTheReleases) {
  const ModelShape shape = test::K3Shape();
  EXPECT_EQ(shape.expert_layers(), 92);
  EXPECT_EQ(shape.record_bytes, 17'547'264);
  EXPECT_NEAR(shape.all_expert_bytes(), 1446.4e9, 0.1e9);
  EXPECT_NEAR(shape.dense_bytes(), 111.2e9, 0.5e9);  // published 113.5 GB, of which 2.35 are the embedding
  EXPECT_NEAR(shape.bytes_per_context, 55.3e3, 50);
}

TEST(Planner, MemoryIsSplitWithinTheBudget) {
  for (const double gigabytes : {16.0, 64.0, 96.0, 128.0, 256.0, 2048.0}) {
    PlanRequest request = Reference();
    request.machine.ram_bytes = static_cast<uint64_t>(gigabytes * 1e9);
    const auto split = SplitMemory(request);
    ASSERT_TRUE(split) << gigabytes;
    EXPECT_LE(split->dense + split->experts + split->conversation + split->activations + split->reserve, split->budget)
        << gigabytes;
    EXPECT_LE(split->budget, request.machine.ram_bytes);
    EXPECT_GE(split->slots, 16);
    EXPECT_EQ(split->resident_dense == 1, gigabytes >= 96) << gigabytes;
    EXPECT_TRUE(split->packed);
  }
}

TEST(Planner, TooLittleMemoryIsRefusedWithWhatWouldDo) {
  PlanRequest request = Reference();
  request.machine.ram_bytes = 1'000'000'000;
  const auto refused = Plan(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message(), HasSubstr("at least"));
  request.machine.ram_bytes = 128'000'000'000;
  request.cache_bytes = 1000;
  EXPECT_THAT(Plan(request).error().message(), HasSubstr("at least"));
  request.cache_bytes = 100'000'000'000;
  EXPECT_THAT(Plan(request).error().message(), HasSubstr("at most"));
}

TEST(Planner, LengthsAndChancesOutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    PlanRequest request = Reference();
    change(request);
    const auto answer = Plan(request);
    return !answer && answer.error().code() == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](PlanRequest& r) { r.prompt_tokens = 0; }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.prompt_tokens = r.context + 1; }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.context = -1; }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.chunk = 0; }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.draft_chance = 1; }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.draft_chance = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](PlanRequest& r) { r.machine.drives.clear(); }));
}

// No token can be faster than its bytes: what is read over all drives, and what passes through memory.
TEST(Planner, NothingIsFasterThanTheMachine) {
  const PlanRequest request = Reference();
  const auto answer = Plan(request);
  ASSERT_TRUE(answer);
  const double token = 1 / answer->tokens_per_second;
  EXPECT_GE(token, answer->decode.totals.expert_bytes / answer->decode.tokens / request.machine.summed_rate());
  EXPECT_GE(token, 0.75 * request.shape.dense_bytes() / request.machine.memory_bytes_per_second);
  EXPECT_LE(answer->decode.bytes_per_token(), 25.83e9 * 1.05);
}

TEST(Planner, MoreDrivesMemoryAndBandwidthAreNotSlower) {
  const PlanRequest base = Reference();
  const double rate = Plan(base)->tokens_per_second;
  const auto with = [&](auto change) {
    PlanRequest request = base;
    change(request);
    return Plan(request)->tokens_per_second;
  };
  EXPECT_GT(with([](PlanRequest& r) { r.machine.drives.push_back({.bytes_per_second = 7.1e9}); }), rate);
  EXPECT_LT(with([](PlanRequest& r) { r.machine.drives.pop_back(); }), rate);
  EXPECT_GT(with([](PlanRequest& r) { r.machine.memory_bytes_per_second *= 2; }), rate);
  EXPECT_GT(with([](PlanRequest& r) { r.machine.ram_bytes *= 2; }), rate);
  EXPECT_LT(with([](PlanRequest& r) { r.layout.kind = LayoutKind::kShards; }), rate);
  EXPECT_LT(with([](PlanRequest& r) { r.machine.ram_bytes /= 2; }), rate / 2);  // dense weights no longer fit
  EXPECT_GT(with([](PlanRequest& r) { r.draft_chance = 0.95; }), rate);
}

TEST(Planner, ALongPromptReadsEveryExpertOnce) {
  PlanRequest request = Reference();
  request.prompt_tokens = 512;
  const auto answer = Plan(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->prompt.wanted, 82432u);
  EXPECT_LE(answer->prompt.expert_bytes, 1446.5e9);
  EXPECT_GT(answer->seconds_first_token, answer->prompt.expert_bytes / request.machine.summed_rate());
}

TEST(Planner, TheLimitIsNamed) {
  PlanRequest request = Reference();
  request.machine.drives = {{.bytes_per_second = 1e9}};
  EXPECT_EQ(Plan(request)->limited_by, "drives");
  request = Reference();
  request.machine.ram_bytes = 64'000'000'000;
  EXPECT_EQ(Plan(request)->limited_by, "memory size");
  request = Reference();
  request.machine.drives.assign(4, {.bytes_per_second = 100e9});
  EXPECT_EQ(Plan(request)->limited_by, "memory bandwidth");
  request.machine.flops_per_second = 1e10;
  EXPECT_EQ(Plan(request)->limited_by, "arithmetic");
}

TEST(PlanChart, EscapesWhatItIsTold) {
  const PlanRequest request = Reference();
  const auto answer = Plan(request);
  ASSERT_TRUE(answer);
  const std::string svg = PlanSvg(*answer, {*answer}, {.title = "<b> & \"c\"", .notes = {"<script>"}, .alternatives = {}});
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_THAT(PlanHtml(*answer, {}, {.title = "t", .notes = {}, .alternatives = {}}), HasSubstr("<svg"));
}

}  // namespace
}  // namespace deltafin::simulate
