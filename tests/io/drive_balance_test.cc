// How well several drives are used together, in simulated time: no byte is read, no result depends on this machine.
//
// The drives of the published ladder in their proportion, records of Kimi K3's size, layers of 16 records that are all
// awaited before the next begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>

#include "io/io_scheduler.h"
#include "support/paced_engine.h"

namespace deltafin {
namespace {

using test::PacedDrive;
using test::PacedEngine;
using test::VirtualClock;

constexpr uint64_t kRecord = 17'547'264;
constexpr uint64_t kPage = 4096;
constexpr int kRecordsALayer = 16;
// 13.6 : 7.1 : 7.1 : 5.4, together 664 MB/s.
const std::vector<double> kLadder = {272e6, 142e6, 142e6, 108e6};

enum class Copies { kNone, kOnTheNextDrive };
// Each record cut over all drives in proportion to the profile, or whole records on one drive each.
enum class Placement { kStriped, kWhole };

struct Scenario {
  std::vector<double> rates = kLadder;    // of the drives
  std::vector<double> profile = kLadder;  // what the scheduler was told; 0 = nothing
  std::vector<double> shares = kLadder;   // of the bytes
  Copies copies = Copies::kNone;
  Placement placement = Placement::kStriped;
  int layers = 20;
  IoSchedulerOptions options = {};
  std::function<void(PacedEngine&)> prepare = [](PacedEngine&) {};
};

struct Outcome {
  double bytes_per_second = 0;
  std::vector<double> layer_seconds;
  std::vector<DriveCounters> drives;
  std::vector<uint64_t> served;
  IoCounters counters;
  std::map<std::string, int> ends;
};

// Reads layer after layer. All reads are made by call-backs, so the order of events does not depend on threads.
class LadderRun {
 public:
  explicit LadderRun(const Scenario& scenario) : scenario_(scenario), files_(scenario.rates.size()) {
    std::vector<PacedDrive> drives;
    for (const double rate : scenario.rates) drives.push_back({.bytes_per_second = rate});
    auto engine = std::make_unique<PacedEngine>(&clock_, drives, 64);
    engine_ = engine.get();
    for (size_t d = 0; d < files_.size(); ++d) engine->SetDrive(&files_[d], static_cast<int32_t>(d));
    scenario.prepare(*engine);
    IoSchedulerOptions options = scenario.options;
    options.drives.clear();
    for (const double rate : scenario.profile)
      options.drives.push_back({.name = Cat("d", options.drives.size()), .bytes_per_second = rate});
    scheduler_ = std::make_unique<IoScheduler>(std::move(engine), options, &clock_);
  }

  Outcome Finish() {
    const ReadRequest first{&files_[0], 0, 1, &memory_};
    scheduler_->Read(first, 0, IoPriority::kDemand, 0, [this](const Status&) {
      started_ = engine_->seconds();
      StartLayer();
    });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return finished_; });
    Outcome outcome = std::move(outcome_);
    outcome.drives = scheduler_->drive_counters();
    outcome.counters = scheduler_->counters();
    for (size_t d = 0; d < files_.size(); ++d) outcome.served.push_back(engine_->bytes_served(static_cast<int32_t>(d)));
    return outcome;
  }

 private:
  std::vector<ReadPart> Parts() {
    const size_t drives = files_.size();
    const double all = std::accumulate(scenario_.shares.begin(), scenario_.shares.end(), 0.0);
    std::vector<ReadPart> parts;
    if (scenario_.placement == Placement::kWhole) {
      // The drive that is furthest behind its share.
      size_t best = 0;
      placed_.resize(drives);
      for (size_t d = 0; d < drives; ++d)
        if ((placed_[d] + 1) / scenario_.shares[d] < (placed_[best] + 1) / scenario_.shares[best]) best = d;
      ++placed_[best];
      parts.push_back(Part(best, 0, kRecord));
      return parts;
    }
    uint64_t at = 0;
    double sum = 0;
    for (size_t d = 0; d < drives; ++d) {
      sum += scenario_.shares[d];
      const uint64_t end = d + 1 == drives ? kRecord : AlignDown(static_cast<uint64_t>(sum / all * kRecord), kPage);
      if (end > at) parts.push_back(Part(d, at, end - at));
      at = end;
    }
    return parts;
  }

  ReadPart Part(size_t drive, uint64_t at, uint64_t bytes) {
    ReadPart part{.request = {&files_[drive], at, bytes, &memory_}, .drive = static_cast<int32_t>(drive)};
    if (scenario_.copies == Copies::kNone) return part;
    // Pieces of one drive are copied to the others in turn.
    size_t other = (drive + 1 + next_copy_++ % (files_.size() - 1)) % files_.size();
    part.copy = {&files_[other], at + 10 * kRecord, static_cast<int32_t>(other)};
    return part;
  }

  void StartLayer() {
    layer_started_ = engine_->seconds();
    open_ = kRecordsALayer;
    for (int i = 0; i < kRecordsALayer; ++i)
      scheduler_->Read(Parts(), IoPriority::kDemand, 1, [this](const Status& status) { End(status); });
  }

  void End(const Status& status) {
    ++outcome_.ends[status ? "ok" : std::string(ToString(status.error().code()))];
    if (--open_ > 0) return;
    outcome_.layer_seconds.push_back(engine_->seconds() - layer_started_);
    if (static_cast<int>(outcome_.layer_seconds.size()) < scenario_.layers) return StartLayer();
    outcome_.bytes_per_second =
        static_cast<double>(kRecord) * kRecordsALayer * scenario_.layers / (engine_->seconds() - started_);
    const std::lock_guard lock(mutex_);
    finished_ = true;
    done_.notify_all();
  }

  const Scenario scenario_;
  VirtualClock clock_;
  std::deque<DirectFile> files_;
  PacedEngine* engine_ = nullptr;
  std::byte memory_{};
  std::vector<double> placed_;
  size_t next_copy_ = 0;
  double started_ = 0, layer_started_ = 0;
  int open_ = 0;
  Outcome outcome_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
  std::unique_ptr<IoScheduler> scheduler_;
};

Outcome Play(const Scenario& scenario) { return LadderRun(scenario).Finish(); }

double Sum(const std::vector<double>& rates) { return std::accumulate(rates.begin(), rates.end(), 0.0); }

std::vector<double> FirstDrives(size_t count) { return {kLadder.begin(), kLadder.begin() + static_cast<long>(count)}; }

class LadderRungs : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Drives, LadderRungs, testing::Values(1, 2, 3, 4));

TEST_P(LadderRungs, StripedRecordsGetNearlyTheSumOfAllDrives) {
  const std::vector<double> rates = FirstDrives(GetParam());
  const Outcome outcome = Play({.rates = rates, .profile = rates, .shares = rates});
  EXPECT_GT(outcome.bytes_per_second / Sum(rates), 0.985);
  EXPECT_LE(outcome.bytes_per_second / Sum(rates), 1.001);
}

TEST(DriveBalance, StripedRecordsNeedNoProfileForNearlyTheSum) {
  const Outcome outcome = Play({.profile = {0, 0, 0, 0}});
  EXPECT_GT(outcome.bytes_per_second / Sum(kLadder), 0.95);
}

TEST(DriveBalance, WholeRecordsWithoutCopiesAreBoundByTheSlowestOfEachLayer) {
  const Outcome outcome = Play({.placement = Placement::kWhole});
  EXPECT_LT(outcome.bytes_per_second / Sum(kLadder), 0.92);
}

TEST(DriveBalance, CopiesLiftWholeRecordsToNearlyTheSum) {
  const Outcome outcome = Play({.copies = Copies::kOnTheNextDrive, .placement = Placement::kWhole});
  EXPECT_GT(outcome.bytes_per_second / Sum(kLadder), 0.96);
}

TEST(DriveBalance, CopiesMakeUpForSharesThatDoNotFitTheRates) {
  const Outcome without = Play({.shares = {1, 1, 1, 1}});
  const Outcome with = Play({.shares = {1, 1, 1, 1}, .copies = Copies::kOnTheNextDrive});
  EXPECT_LT(without.bytes_per_second / Sum(kLadder), 0.66);
  EXPECT_GT(with.bytes_per_second / Sum(kLadder), 0.95);
}

TEST(DriveBalance, CopiesMakeUpForAProfileThatIsWrongAboutEveryDrive) {
  const Outcome outcome = Play({.profile = {100e6, 300e6, 60e6, 200e6}, .copies = Copies::kOnTheNextDrive});
  EXPECT_GT(outcome.bytes_per_second / Sum(kLadder), 0.95);
}

TEST(DriveBalance, CopiesAreLeftAloneWhereTheSharesFit) {
  const Outcome outcome = Play({.copies = Copies::kOnTheNextDrive});
  EXPECT_GT(outcome.bytes_per_second / Sum(kLadder), 0.985);
  uint64_t replica = 0;
  for (const DriveCounters& drive : outcome.drives) replica += drive.replica_bytes;
  EXPECT_LT(static_cast<double>(replica), 0.05 * static_cast<double>(outcome.counters.device_bytes));
}

class SlowDrive : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Drive, SlowDrive, testing::Values(0, 1, 2, 3));

TEST_P(SlowDrive, TenTimesSlowerThanItsProfileLeavesTheOthersTheirThroughput) {
  std::vector<double> rates = kLadder;
  rates[GetParam()] /= 10;
  const double others = Sum(rates) - rates[GetParam()];
  for (const Placement placement : {Placement::kStriped, Placement::kWhole}) {
    const Outcome outcome = Play({.rates = rates, .copies = Copies::kOnTheNextDrive, .placement = placement});
    EXPECT_GT(outcome.bytes_per_second, others) << others;
  }
}

TEST_P(SlowDrive, ASuddenSlowdownCostsLittleMoreThanWhatWasOut) {
  const size_t slow = GetParam();
  Scenario scenario{.copies = Copies::kOnTheNextDrive};
  scenario.prepare = [slow](PacedEngine& engine) {
    engine.SetRateAt(3.1, static_cast<int32_t>(slow), kLadder[slow] / 10);  // inside a layer
  };
  const Outcome outcome = Play(scenario);
  const double others = Sum(kLadder) - kLadder[slow];
  const double layer = static_cast<double>(kRecord) * kRecordsALayer / others;
  // A window holds 32 ms of reads and more where chunks are at their smallest; all of it now takes ten times as long.
  for (const double seconds : outcome.layer_seconds) EXPECT_LT(seconds, layer * 1.02 + 0.1);
  EXPECT_LT(outcome.layer_seconds.back(), layer);
}

TEST_P(SlowDrive, ADriveThatRecoversIsUsedAgain) {
  const auto slow = static_cast<int32_t>(GetParam());
  Scenario scenario{.copies = Copies::kOnTheNextDrive, .layers = 60};
  scenario.prepare = [slow](PacedEngine& engine) {
    engine.SetRateAt(2.1, slow, kLadder[static_cast<size_t>(slow)] / 10);
    engine.SetRateAt(5.3, slow, kLadder[static_cast<size_t>(slow)]);
  };
  const Outcome outcome = Play(scenario);
  const double layer = static_cast<double>(kRecord) * kRecordsALayer / Sum(kLadder);
  EXPECT_LT(outcome.layer_seconds.back(), layer * 1.04);
}

TEST(DriveBalance, AShortStallOfOneDriveDelaysOneLayer) {
  Scenario scenario;
  scenario.prepare = [](PacedEngine& engine) {
    engine.SetRateAt(2.0, 1, 0);
    engine.SetRateAt(2.6, 1, kLadder[1]);
  };
  const Outcome outcome = Play(scenario);
  const double layer = static_cast<double>(kRecord) * kRecordsALayer / Sum(kLadder);
  int late = 0;
  for (const double seconds : outcome.layer_seconds) late += seconds > layer * 1.04 ? 1 : 0;
  EXPECT_EQ(late, 1);
  EXPECT_EQ(outcome.ends.at("ok"), 20 * kRecordsALayer);
}

TEST(DriveBalance, ADriveThatFailsIsReplacedByTheCopiesAndSaidOnce) {
  std::vector<int32_t> degraded;
  Scenario scenario{.copies = Copies::kOnTheNextDrive};
  scenario.options.on_degraded = [&degraded](int32_t drive, const std::string&) { degraded.push_back(drive); };
  std::atomic<int> reads{0};
  scenario.prepare = [&reads](PacedEngine& engine) {
    engine.SetFault([&reads, first = static_cast<const DirectFile*>(nullptr)](const ReadRequest& request) mutable {
      if (first == nullptr) first = request.file;  // drive 0 is read first
      if (request.file != first || ++reads < 500) return Status();
      return Status(Fail(ErrorCode::kIo, "gone"));
    });
  };
  const Outcome outcome = Play(scenario);
  EXPECT_EQ(outcome.ends.at("ok"), 20 * kRecordsALayer);
  EXPECT_THAT(degraded, testing::ElementsAre(0));
  const double layer = static_cast<double>(kRecord) * kRecordsALayer / (Sum(kLadder) - kLadder[0]);
  EXPECT_LT(outcome.layer_seconds.back(), layer * 1.03);
}

}  // namespace
}  // namespace deltafin
