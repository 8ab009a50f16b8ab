// A streamed folder that something happened to: files removed, cut short, damaged or put there by somebody else, and
// headers that came wrong: `setup` mends it, or names the file and says what to do. Two at once lose nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "checkpoint/inspect.h"
#include "checkpoint/integrity.h"
#include "pack/folder_locks.h"
#include "stream/made_stream.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using test::HubServer;
using testing::HasSubstr;

constexpr uint64_t kMost = uint64_t{1} << 30;

class StreamMend : public testing::Test {
 protected:
  StreamMend() {
    for (const auto& entry : fs::directory_iterator(test::NanoModel()))
      if (const std::string name = entry.path().filename().string(); name.ends_with(".safetensors"))
        shards_.push_back(name);
    std::sort(shards_.begin(), shards_.end());
  }
  const std::string& to() const { return folder_.path(); }
  std::string Partial(const std::string& name) const { return to() + "/partial/" + name; }
  std::string Whole(const std::string& name) const { return to() + "/" + name; }
  Result<int> Setup(bool dense_only = true) { return RunStreamSetup(test::SetupOf(server_, to(), dense_only)); }
  Result<int> SetupOnce() {
    StreamSetupOptions options = test::SetupOf(server_, to());
    options.access.check_twice = CheckTwice::kOff;
    return RunStreamSetup(options);
  }
  void ExpectSetup(bool dense_only) {
    const Result<int> done = Setup(dense_only);
    ASSERT_TRUE(done) << done.error().message();
  }
  // It runs, and completing it ends as the repository.
  void ExpectMended() {
    ExpectSetup(true);
    const auto report = InspectFolder(to());
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->complete);
    EXPECT_GT(test::ExpectStoredBytes(to()), 0u);
    ExpectSetup(false);
    test::ExpectComplete(to());
  }
  static void Damage(const std::string& path, uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    ASSERT_TRUE(file.good()) << path;
  }
  // As if it had come like that: the map speaks of the damaged bytes.
  void StoreWrongHeader(const std::string& name, const std::function<void(std::string&)>& damage) {
    const auto folder = StreamFolder::Open(to(), StreamFolder::Use::kFetch);
    ASSERT_TRUE(folder) << folder.error().message();
    const int32_t file = (*folder)->manifest().Find(name);
    const FileRange range = (*folder)->Ranges(file).front().range;
    ASSERT_EQ(range.offset, 0u);
    std::string header = ReadWholeFile(Partial(name), kMost)->substr(0, range.bytes);
    damage(header);
    const uint64_t sizes[] = {header.size()};
    ASSERT_TRUE((*folder)->Put({PresenceKind::kDense, file, 0, std::as_bytes(std::span(header)), sizes}));
  }

  HubServer server_{test::NanoModel()};
  const test::TempFolder folder_;
  std::vector<std::string> shards_;
};

TEST_F(StreamMend, AFolderThatSomebodyElseWorksInIsLeftAlone) {
  ExpectSetup(true);
  const std::string map = ReadWholeFile(Partial(kPresenceName), kMost).value();
  FolderLocks theirs;
  ASSERT_TRUE(theirs.Take({to()}, FolderLocks::Kind::kWrites));
  std::ofstream(to() + "/config.json.part-999999999") << "theirs";
  const Result<int> second = Setup();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr("expected to be alone"));
  EXPECT_EQ(ReadWholeFile(Partial(kPresenceName), kMost).value(), map);
  EXPECT_TRUE(fs::exists(to() + "/config.json.part-999999999"));
}

TEST_F(StreamMend, TwoThatBeginAtOnceLoseNothingThatWasFetched) {
  server_.SetDelay(20);
  pid_t children[2] = {};
  for (pid_t& child : children) {
    child = fork();
    if (child == 0) {
      const Result<int> done = Setup();
      _exit(done ? 0 : done.error().code() == ErrorCode::kUnavailable ? 10 : 1);
    }
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WEXITSTATUS(status));
  }
  EXPECT_THAT(codes, testing::UnorderedElementsAre(0, 10));
  server_.SetDelay(0);
  const int requests = server_.requests();
  ExpectSetup(true);
  EXPECT_EQ(server_.requests(), requests) << "what the first fetched is there";
}

TEST_F(StreamMend, AShardThatSomebodyPutThereIsComparedBeforeItCounts) {
  const std::string good = shards_[1], bad = shards_[2];
  fs::copy_file(test::NanoModel() + "/" + good, Whole(good));
  fs::copy_file(test::NanoModel() + "/" + bad, Whole(bad));
  Damage(Whole(bad), fs::file_size(Whole(bad)) / 2);
  for (const bool dense_only : {true, false}) {
    const Result<int> done = Setup(dense_only);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(done.error().message(), HasSubstr(Whole(bad)));
    EXPECT_THAT(done.error().message(), HasSubstr("remove it"));
  }
  fs::remove(Whole(bad));
  ExpectMended();
}

TEST_F(StreamMend, AShardThatWasComparedIsComparedAgainWhenItChanged) {
  fs::copy_file(test::NanoModel() + "/" + shards_[1], Whole(shards_[1]));
  ExpectSetup(true);
  Damage(Whole(shards_[1]), fs::file_size(Whole(shards_[1])) / 2);
  fs::last_write_time(Whole(shards_[1]), fs::file_time_type::clock::now() + std::chrono::seconds(5));
  const Result<int> done = Setup(false);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr(Whole(shards_[1])));
}

TEST_F(StreamMend, ALostOrEmptyMapIsAnEmptyOne) {
  ExpectSetup(true);
  fs::resize_file(Partial(kPresenceName), 0);
  ExpectSetup(true);
  fs::remove(Partial(kPresenceName));
  const auto read = StreamFolder::Open(to(), StreamFolder::Use::kRead);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr("setup --dense-only"));
  ExpectMended();
}

TEST_F(StreamMend, AMapOfAnotherFolderIsNamedAndRemovingItIsEnough) {
  ExpectSetup(true);
  Damage(Partial(kPresenceName), 10);
  const Result<int> done = Setup();
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("remove it"));
  fs::remove(Partial(kPresenceName));
  ExpectMended();
}

TEST_F(StreamMend, AShardThatWasCutShortOrRemovedBeginsAnew) {
  ExpectSetup(true);
  fs::resize_file(Partial(shards_[0]), fs::file_size(Partial(shards_[0])) / 2);
  fs::remove(Partial(shards_[1]));
  ExpectMended();
}

TEST_F(StreamMend, RunsMayNotBeginBeforeWhatWasLostIsBack) {
  ExpectSetup(true);
  fs::remove(Partial(shards_[0]));
  server_.GoAway();
  StreamSetupOptions options = test::SetupOf(server_, to());
  options.access.hub.retry.attempts = 1;
  ASSERT_FALSE(RunStreamSetup(options));
  EXPECT_FALSE(ReadStreamManifest(to())->dense_complete);
  server_.BeGood();
  ExpectMended();
}

TEST_F(StreamMend, AWholeShardThatWasRemovedComesAgain) {
  fs::copy_file(test::NanoModel() + "/" + shards_[0], Whole(shards_[0]));
  ExpectSetup(true);
  fs::remove(Whole(shards_[0]));
  ExpectMended();
}

TEST_F(StreamMend, WithoutItsPartialFolderItBeginsAnew) {
  ExpectSetup(true);
  fs::remove_all(to() + "/partial");
  ExpectMended();
}

TEST_F(StreamMend, AHeaderThatComesWrongComesAgain) {
  server_.FlipHeaders(2);
  const Result<int> done = SetupOnce();
  ASSERT_TRUE(done) << done.error().message();
  ExpectMended();
}

TEST_F(StreamMend, AHeaderThatIsAlwaysWrongIsAnErrorAndTheNextCallGoesOn) {
  server_.FlipHeaders(1'000'000);
  for (const CheckTwice twice : {CheckTwice::kOff, CheckTwice::kAuto}) {
    StreamSetupOptions options = test::SetupOf(server_, to());
    options.access.check_twice = twice;
    const Result<int> done = RunStreamSetup(options);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), ErrorCode::kCorrupt) << done.error().message();
    EXPECT_THAT(done.error().message(), HasSubstr(".safetensors"));
  }
  server_.FlipHeaders(0);
  ExpectMended();
}

TEST_F(StreamMend, AFolderWithAWrongHeaderIsMendedByGivingTheCommandAgain) {
  ExpectSetup(true);
  StoreWrongHeader(shards_[0], [](std::string& header) { header[8] = '!'; });
  ExpectSetup(true);
  // One that is well formed, with a wrong letter in a name.
  StoreWrongHeader(shards_[0], [](std::string& header) {
    const size_t at = header.find("weight");
    ASSERT_NE(at, std::string::npos);
    header[at] = 'v';
  });
  ExpectMended();
}

}  // namespace
}  // namespace deltafin
