// How weights are opened: directly, or through the page cache where the drive was measured to be faster so.
#include "engine/weight_files.h"

#include <gtest/gtest.h>

#include "io/drive_profile.h"
#include "support/engine_runs.h"
#include "support/expert_set_builder.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

class ProfiledReads : public testing::Test {
 protected:
  // As if `deltafin drives` had measured the drive of `folder`.
  void Measure(const std::string& folder, bool direct) {
    DriveProfile profile;
    profile.identity = *DriveIdentity(folder);
    profile.bytes_per_second = 1e9;
    profile.direct = direct;
    ASSERT_TRUE(StoreDriveProfile(state_.path(), profile));
  }
  Result<WeightFiles> Open(const std::vector<std::string>& experts = {}) {
    EngineOptions options;
    options.model = test::MicroFolder();
    options.experts = experts;
    options.state_dir = state_.path();
    return WeightFiles::Open(options, logger_, {}, {});
  }

  const test::TempFolder state_;
  std::vector<std::string> warnings_;
  Logger logger_{[this](const std::string& warning) { warnings_.push_back(warning); }};
};

TEST_F(ProfiledReads, GoThroughThePageCacheWhereThatWasMeasuredToBeFaster) {
  const Result<WeightFiles> unmeasured = Open();
  ASSERT_TRUE(unmeasured) << unmeasured.error().message();
  if (unmeasured->checkpoint->shard(0).buffered()) GTEST_SKIP() << "no direct reads here";
  Measure(test::MicroFolder(), true);
  EXPECT_FALSE(Open()->checkpoint->shard(0).buffered());
  Measure(test::MicroFolder(), false);
  const Result<WeightFiles> files = Open();
  ASSERT_TRUE(files) << files.error().message();
  for (int i = 0; i < files->checkpoint->shard_count(); ++i) EXPECT_TRUE(files->checkpoint->shard(i).buffered());
  EXPECT_TRUE(warnings_.empty()) << "it was a choice: " << warnings_[0];
}

TEST_F(ProfiledReads, OfAnExpertSetAreChosenByItsOwnDrive) {
  const test::TempFolder folder;
  const std::vector<std::string> drives = test::DriveFolders(folder.path(), 1);
  test::BuildExpertSet(test::MicroFolder(), drives);
  const auto is_buffered = [&] {
    const Result<WeightFiles> files = Open(drives);
    EXPECT_TRUE(files) << files.error().message();
    ReadPart parts[IoScheduler::kMaxParts];
    std::byte slot{};
    files->set->Parts({1, 0}, &slot, 0, parts);
    return parts[0].request.file->buffered();
  };
  if (is_buffered()) GTEST_SKIP() << "no direct reads in " << folder.path();
  Measure(drives[0], false);
  EXPECT_TRUE(is_buffered());
}

}  // namespace
}  // namespace deltafin
