// `deltafin inspect` of a model whose experts were packed: what it says, and with which exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "support/engine_runs.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class InspectPacked : public testing::Test {
 protected:
  void SetUp() override { fs::copy(test::NanoFolder(), model_, fs::copy_options::recursive); }

  test::ProcessResult Deltafin(std::vector<std::string> arguments) {
    test::ProcessOptions options;
    options.arguments = std::move(arguments);
    return test::RunProcess(DELTAFIN_PROGRAM, options);
  }
  test::ProcessResult Inspect(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"inspect", "--model", model_, "--no-state"});
    return Deltafin(more);
  }
  void Pack(std::vector<std::string> more) {
    more.insert(more.begin(), {"pack", "--model", model_, "--to", a_, "--to", b_, "--quiet", "--state-dir", state_});
    const auto packed = Deltafin(more);
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }

  const test::TempFolder root_;
  const std::string model_ = root_.path() + "/model", a_ = root_.path() + "/a", b_ = root_.path() + "/b",
                    state_ = root_.path() + "/state";
};

TEST_F(InspectPacked, ExpertsThatWereMovedAreInTheSet) {
  Pack({"--move"});
  const auto text = Inspect();
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_THAT(text.out, HasSubstr("complete: ready to run"));
  EXPECT_THAT(text.out, HasSubstr(a_));
  EXPECT_THAT(text.out, HasSubstr(b_));
  EXPECT_THAT(text.out, HasSubstr(": reachable, generation 1, 768 of 768 experts"));
  EXPECT_THAT(text.out, HasSubstr("moved the experts of 8 shards there"));
  EXPECT_THAT(text.out, HasSubstr("4608 of them in the expert set"));
  EXPECT_THAT(text.out, Not(HasSubstr("problem")));
  const auto json = Inspect({"--json"});
  EXPECT_EQ(json.exit_code, 0);
  const Json report = Json::parse(json.out);
  EXPECT_EQ(report["complete"], true);
  EXPECT_EQ(report["tensors_missing"], 0);
  EXPECT_EQ(report["tensors_in_expert_set"], 768 * 6);
  EXPECT_EQ(report["shards_moved"], 8);
  EXPECT_EQ(report["expert_set"]["folders"], Json::array({a_, b_}));
  EXPECT_EQ(report["expert_set"]["reachable"], true);
  EXPECT_EQ(report["expert_set"]["complete"], true);
  EXPECT_EQ(report["expert_set"]["experts"], 768);
  EXPECT_EQ(report["shards"][1]["experts_moved_to"], report["expert_set"]["set_id"]);
}

TEST_F(InspectPacked, ExpertsThatWereMovedToADriveThatIsAwayAreNotReachable) {
  Pack({"--move"});
  fs::rename(b_, b_ + "-away");
  const auto text = Inspect();
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_THAT(text.out, HasSubstr("not reachable"));
  EXPECT_THAT(text.out, HasSubstr("not complete: it cannot run"));
  const Json report = Json::parse(Inspect({"--json"}).out);
  EXPECT_EQ(report["complete"], false);
  EXPECT_EQ(report["expert_set"]["reachable"], false);
  EXPECT_EQ(report["expert_set"]["complete"], false);
  EXPECT_THAT(report["expert_set"]["problem"].get<std::string>(), HasSubstr(b_));
}

TEST_F(InspectPacked, ExpertsOfANamedSetAreFoundToo) {
  Pack({"--move"});
  fs::remove(model_ + "/deltafin-experts.json");
  EXPECT_EQ(Inspect().exit_code, 3);
  EXPECT_EQ(Inspect({"--experts", a_, "--experts", b_}).exit_code, 0);
}

TEST_F(InspectPacked, ASetBesideWholeShardsIsShownToo) {
  Pack({});
  const Json report = Json::parse(Inspect({"--json"}).out);
  EXPECT_EQ(report["complete"], true);
  EXPECT_EQ(report["shards_moved"], 0);
  EXPECT_EQ(report["tensors_in_expert_set"], 0);
  EXPECT_EQ(report["expert_set"]["complete"], true);
}

TEST_F(InspectPacked, WithoutASetThereIsNone) {
  EXPECT_TRUE(Json::parse(Inspect({"--json"}).out)["expert_set"].is_null());
  EXPECT_THAT(Inspect().out, Not(HasSubstr("expert set")));
}

}  // namespace
}  // namespace deltafin
