// Profiles of drives: kept, found again, and ignored when they are damaged or another drive's.
#include "io/drive_profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/drive_list.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

class DriveProfileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(state_); }
  void TearDown() override { fs::remove_all(state_); }
  const std::string state_ = testing::TempDir() + "/drive_profile_" + std::to_string(getpid());
};

DriveProfile Sample(const std::string& identity) {
  DriveProfile p;
  p.identity = identity;
  p.device = "nvme0n1";
  p.model = "Model \"7\" \xc3\xa9";
  p.measured_unix_seconds = 1'800'000'000;
  p.bytes_per_second = 7.1e9;
  p.block_bytes = 1 << 20;
  p.depth = 8;
  p.direct = false;
  p.grid = {{65536, 1, true, 1.5e9, 4e-5, 9e-5}, {1 << 20, 8, true, 7.0e9, 1.1e-3, 2.5e-3}};
  p.together = {{{"uuid:b:1", "uuid:c:2"}, 5.5e9}, {{"uuid:b:1"}, 6.0e9}};
  return p;
}

TEST_F(DriveProfileTest, ComesBackAsItWasStored) {
  const DriveProfile stored = Sample("uuid:00ff:512");
  ASSERT_TRUE(StoreDriveProfile(state_, stored));
  std::string problem;
  const std::optional<DriveProfile> loaded = LoadDriveProfile(state_, "uuid:00ff:512", &problem);
  ASSERT_TRUE(loaded) << problem;
  EXPECT_EQ(DriveProfileText(*loaded), DriveProfileText(stored));
  EXPECT_EQ(loaded->model, stored.model);
  EXPECT_EQ(loaded->bytes_per_second, 7.1e9);
  EXPECT_FALSE(loaded->direct);
  ASSERT_EQ(loaded->grid.size(), 2u);
  EXPECT_EQ(loaded->grid[1].depth, 8);
  ASSERT_EQ(loaded->together.size(), 2u);
  EXPECT_EQ(loaded->together[0].others, (std::vector<std::string>{"uuid:b:1", "uuid:c:2"}));
  EXPECT_EQ(loaded->together[1].bytes_per_second, 6.0e9);
}

TEST_F(DriveProfileTest, ANewerOneReplacesTheOlder) {
  DriveProfile profile = Sample("dev:8:1:99");
  ASSERT_TRUE(StoreDriveProfile(state_, profile));
  profile.bytes_per_second = 3e9;
  ASSERT_TRUE(StoreDriveProfile(state_, profile));
  EXPECT_EQ(LoadDriveProfile(state_, "dev:8:1:99")->bytes_per_second, 3e9);
  EXPECT_EQ(std::distance(fs::directory_iterator(state_ + "/drives"), fs::directory_iterator()), 1);
}

TEST_F(DriveProfileTest, NoProfileIsNoProblem) {
  std::string problem;
  EXPECT_FALSE(LoadDriveProfile(state_, "uuid:unknown", &problem));
  EXPECT_EQ(problem, "");
  EXPECT_FALSE(LoadDriveProfile("", "uuid:unknown"));
}

TEST(DriveProfile, IsRefusedWhenTruncatedAnywhere) {
  const std::string whole = DriveProfileText(Sample("uuid:1"));
  ASSERT_TRUE(ParseDriveProfile(whole, "profile"));
  // The last byte is the newline.
  for (size_t length = 0; length + 1 < whole.size(); ++length)
    EXPECT_FALSE(ParseDriveProfile(whole.substr(0, length), "profile")) << length;
}

TEST_F(DriveProfileTest, IsIgnoredWhenDamagedAndTheReasonIsTold) {
  ASSERT_TRUE(StoreDriveProfile(state_, Sample("uuid:1")));
  std::ofstream(DriveProfilePath(state_, "uuid:1"), std::ios::trunc) << "{\"version\":1";
  std::string problem;
  EXPECT_FALSE(LoadDriveProfile(state_, "uuid:1", &problem));
  EXPECT_NE(problem, "");
  EXPECT_FALSE(LoadDriveProfile(state_, "uuid:1"));
}

TEST_F(DriveProfileTest, IsIgnoredWhenItIsAnotherDrives) {
  ASSERT_TRUE(StoreDriveProfile(state_, Sample("uuid:1")));
  fs::copy_file(DriveProfilePath(state_, "uuid:1"), DriveProfilePath(state_, "uuid:2"));
  std::string problem;
  EXPECT_FALSE(LoadDriveProfile(state_, "uuid:2", &problem));
  EXPECT_NE(problem.find("is of another drive: expected uuid:2, got uuid:1"), std::string::npos) << problem;
}

struct Damage {
  const char* name;
  const char* from;
  const char* to;
};
class DamagedProfile : public testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(
    Field, DamagedProfile,
    testing::Values(Damage{"NegativeRate", "\"bytes_per_second\":7100000000.0", "\"bytes_per_second\":-1"},
                    Damage{"RateOfText", "\"bytes_per_second\":7100000000.0", "\"bytes_per_second\":\"fast\""},
                    Damage{"EndlessRate", "\"bytes_per_second\":7100000000.0", "\"bytes_per_second\":1e300"},
                    Damage{"NewerVersion", "\"version\":1", "\"version\":2"},
                    Damage{"NoVersion", "\"version\":1", "\"other\":1"},
                    Damage{"HugeDepth", "\"depth\":8,\"direct\":false", "\"depth\":99999999999,\"direct\":false"},
                    Damage{"NoGrid", "\"grid\":[", "\"grit\":["},
                    Damage{"NumbersAsOthers", "\"others\":[\"uuid:b:1\"]", "\"others\":[7]"}),
    [](const auto& info) { return info.param.name; });

TEST_P(DamagedProfile, IsRefusedByTheParser) {
  std::string text = DriveProfileText(Sample("uuid:1"));
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  EXPECT_FALSE(ParseDriveProfile(text, "profile"));
}

TEST_F(DriveProfileTest, IdentitiesThatAFileNameCannotHoldStayApart) {
  EXPECT_NE(DriveProfilePath(state_, "nfs:host:/a:1"), DriveProfilePath(state_, "nfs:host:_a:1"));
  const std::string name = fs::path(DriveProfilePath(state_, std::string(500, '/'))).filename().string();
  EXPECT_LT(name.size(), 200u);
}

TEST_F(DriveProfileTest, KeepsOnlyTheNewest) {
  for (size_t i = 0; i < kMaxDriveProfiles + 5; ++i)
    ASSERT_TRUE(StoreDriveProfile(state_, Sample("uuid:" + std::to_string(i))));
  const auto files = std::distance(fs::directory_iterator(state_ + "/drives"), fs::directory_iterator());
  EXPECT_EQ(static_cast<size_t>(files), kMaxDriveProfiles);
}

TEST_F(DriveProfileTest, AStateFolderThatCannotBeMadeIsAnError) {
  std::ofstream(state_ + "/file") << "x";
  const Status stored = StoreDriveProfile(state_ + "/file", Sample("uuid:1"));
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), ErrorCode::kIo);
}

TEST_F(DriveProfileTest, IdentityBelongsToTheDriveNotToTheFolder) {
  fs::create_directories(state_ + "/a/b");
  const Result<std::string> a = DriveIdentity(state_ + "/a"), b = DriveIdentity(state_ + "/a/b");
  ASSERT_TRUE(a) << a.error().message();
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, "");
  const Result<std::string> missing = DriveIdentity(state_ + "/missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
}

TEST_F(DriveProfileTest, ReadsAreBufferedWhereTheyWereMeasuredToBeFasterSo) {
  const std::string identity = *DriveIdentity(state_);
  EXPECT_FALSE(ProfiledBuffered(state_, state_)) << "not measured";
  DriveProfile profile = Sample(identity);
  profile.direct = true;
  ASSERT_TRUE(StoreDriveProfile(state_, profile));
  EXPECT_FALSE(ProfiledBuffered(state_, state_));
  profile.direct = false;
  ASSERT_TRUE(StoreDriveProfile(state_, profile));
  EXPECT_TRUE(ProfiledBuffered(state_, state_));
  EXPECT_FALSE(ProfiledBuffered("", state_)) << "no state folder";
  EXPECT_FALSE(ProfiledBuffered(state_, state_ + "/missing"));
  std::ofstream(DriveProfilePath(state_, identity), std::ios::trunc) << "{";
  EXPECT_FALSE(ProfiledBuffered(state_, state_)) << "damaged";
}

// /dev is a mount of its own on every system that we run on.
class ProfiledRatesTest : public DriveProfileTest {
 protected:
  void SetUp() override {
    DriveProfileTest::SetUp();
    here_ = *DriveIdentity(state_);
    there_ = *DriveIdentity("/dev");
    if (here_ == there_) GTEST_SKIP() << "/dev is no mount of its own here";
  }
  void Store(const std::string& identity, double alone, std::vector<DriveProfile::Together> together = {}) {
    DriveProfile profile;
    profile.identity = identity;
    profile.bytes_per_second = alone;
    profile.together = std::move(together);
    ASSERT_TRUE(StoreDriveProfile(state_, profile));
  }
  std::vector<double> Rates(const std::vector<std::string>& folders) { return ProfiledRates(state_, folders); }
  std::string here_, there_;
};

TEST_F(ProfiledRatesTest, AreZeroWithoutAProfile) {
  Store(here_, 4e9);
  EXPECT_EQ(Rates({state_, "/dev"}), (std::vector<double>{4e9, 0}));
}

TEST_F(ProfiledRatesTest, AreThoseOfAllReadTogether) {
  Store(here_, 4e9, {{{there_, "uuid:third"}, 1e9}, {{there_}, 3e9}});
  Store(there_, 2e9, {{{here_}, 1.5e9}});
  EXPECT_EQ(Rates({"/dev", state_}), (std::vector<double>{1.5e9, 3e9}));
  EXPECT_EQ(Rates({state_}), (std::vector<double>{4e9}));
}

TEST_F(ProfiledRatesTest, AreThoseAloneUnlessAllWereReadTogether) {
  Store(here_, 4e9, {{{there_}, 3e9}});
  Store(there_, 2e9);
  EXPECT_EQ(Rates({state_, "/dev"}), (std::vector<double>{4e9, 2e9}));
}

TEST_F(ProfiledRatesTest, OfFoldersOnOneDriveAreItsParts) {
  Store(here_, 4e9);
  EXPECT_EQ(Rates({state_, state_}), (std::vector<double>{2e9, 2e9}));
}

TEST_F(ProfiledRatesTest, OfAFolderThatIsYetToBeMadeAreThoseOfItsDrive) {
  Store(here_, 4e9, {{{there_}, 3e9}});
  Store(there_, 2e9, {{{here_}, 1e9}});
  EXPECT_EQ(Rates({state_ + "/new/set", "/dev/new"}), (std::vector<double>{3e9, 1e9}));
  EXPECT_FALSE(std::filesystem::exists(state_ + "/new"));
}

TEST_F(ProfiledRatesTest, OfAnotherDriveDoNotMakeReadsBuffered) {
  ASSERT_TRUE(StoreDriveProfile(state_, Sample(there_)));
  EXPECT_TRUE(ProfiledBuffered(state_, "/dev"));
  EXPECT_FALSE(ProfiledBuffered(state_, state_));
}

}  // namespace
}  // namespace deltafin
