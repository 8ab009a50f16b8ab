// A streamed folder on disk: what was put is there after reopening, what failed is not, one process fetches at a time.
#include "checkpoint/stream_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "checkpoint/integrity.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRecord = 64 * 1024;

class Folder : public testing::Test {
 protected:
  Folder() {
    manifest_.endpoint = "https://hub.example";
    manifest_.repository = "owner/name";
    manifest_.revision = "main";
    manifest_.commit = std::string(40, 'c');
    manifest_.files = {{"a.safetensors", 32 * kRecord, std::string(64, '1'), ""}};
    EXPECT_TRUE(StreamFolder::Create(path(), manifest_));
  }
  const std::string& path() const { return folder_.path(); }
  std::unique_ptr<StreamFolder> Open(StreamFolder::Use use = StreamFolder::Use::kFetch, uint64_t most = 0) {
    Result<std::unique_ptr<StreamFolder>> opened = StreamFolder::Open(path(), use, most);
    EXPECT_TRUE(opened) << opened.error().message();
    return opened ? std::move(*opened) : nullptr;
  }
  static FileRange Record(uint64_t number) { return {0, number * kRecord, kRecord}; }
  static std::vector<std::byte> BytesOf(uint64_t number) {
    return std::vector<std::byte>(kRecord, static_cast<std::byte>(number + 1));
  }
  static Status Put(StreamFolder& folder, uint64_t number, const std::function<bool(const FileRange&)>& busy = {}) {
    const std::vector<std::byte> bytes = BytesOf(number);
    const uint64_t sizes[] = {kRecord};
    return folder.Put({PresenceKind::kExpert, 0, number * kRecord, bytes, sizes}, busy);
  }
  std::string shard() const { return path() + "/partial/a.safetensors"; }
  std::string BytesOnDisk(uint64_t number) const {
    std::ifstream file(shard(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(number * kRecord));
    std::string bytes(kRecord, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(kRecord));
    return bytes;
  }
  uint64_t AllocatedBytes() const {
    struct stat info {};
    EXPECT_EQ(stat(shard().c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

  const test::TempFolder folder_;
  StreamManifest manifest_;
};

TEST_F(Folder, WhatWasPutIsThereAfterReopeningAndTakesOnlyItsRoom) {
  {
    const auto folder = Open();
    ASSERT_TRUE(Put(*folder, 3));
    ASSERT_TRUE(Put(*folder, 7));
  }
  const auto folder = Open(StreamFolder::Use::kRead);
  EXPECT_TRUE(folder->Has(Record(3)));
  EXPECT_FALSE(folder->Has(Record(4)));
  EXPECT_EQ(folder->HashOf(Record(7)), Hash64(Bytes(BytesOf(7))));
  EXPECT_EQ(BytesOnDisk(3), std::string(kRecord, '\4'));
  EXPECT_LT(AllocatedBytes(), 4 * kRecord);
}

TEST_F(Folder, OneProcessFetchesOrSeveralReadNeverBoth) {
  auto fetches = Open();
  for (const auto use : {StreamFolder::Use::kFetch, StreamFolder::Use::kRead}) {
    const auto second = StreamFolder::Open(path(), use);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
    EXPECT_THAT(second.error().message(), HasSubstr("another deltafin"));
  }
  fetches.reset();
  const auto one = Open(StreamFolder::Use::kRead), two = Open(StreamFolder::Use::kRead);
  EXPECT_FALSE(StreamFolder::Open(path(), StreamFolder::Use::kFetch));
}

TEST_F(Folder, ARecordThatCouldNotBeWrittenIsNotThereAndTheOthersAre) {
  {
    const auto folder = Open();
    ASSERT_TRUE(Put(*folder, 1));
    struct rlimit before {};
    getrlimit(RLIMIT_FSIZE, &before);
    const struct rlimit small { 16 * kRecord, before.rlim_max };
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status written = Put(*folder, 20);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().message(), HasSubstr(shard()));
    EXPECT_FALSE(folder->Has(Record(20)));
    EXPECT_TRUE(Put(*folder, 20)) << "goes on once there is room";
  }
  const auto folder = Open();
  EXPECT_TRUE(folder->Has(Record(1)));
  EXPECT_TRUE(folder->Has(Record(20)));
}

TEST_F(Folder, ABoundDropsTheOldestButNoneThatIsInUseAndGivesTheirRoomBack) {
  const auto folder = Open(StreamFolder::Use::kFetch, 4 * kRecord);
  const auto busy = [](const FileRange& range) { return range == Record(0); };
  for (uint64_t number = 0; number < 12; ++number) ASSERT_TRUE(Put(*folder, number, busy));
  EXPECT_TRUE(folder->Has(Record(0)));
  for (uint64_t number = 1; number < 9; ++number) {
    EXPECT_FALSE(folder->Has(Record(number))) << number;
    EXPECT_EQ(BytesOnDisk(number), std::string(kRecord, '\0'));
  }
  for (uint64_t number = 9; number < 12; ++number) EXPECT_TRUE(folder->Has(Record(number))) << number;
  EXPECT_EQ(folder->totals().expert_bytes, 4 * kRecord);
  EXPECT_LE(AllocatedBytes(), 5 * kRecord);
}

TEST_F(Folder, AnEntryThatWasTornOffIsCutAndTheNextOnesAreReadable) {
  {
    const auto folder = Open();
    ASSERT_TRUE(Put(*folder, 1));
  }
  std::ofstream(path() + "/partial/present.log", std::ios::binary | std::ios::app) << std::string(30, 'x');
  {
    const auto folder = Open();
    ASSERT_TRUE(Put(*folder, 2));
  }
  const auto folder = Open();
  EXPECT_TRUE(folder->Has(Record(1)));
  EXPECT_TRUE(folder->Has(Record(2)));
  EXPECT_EQ(folder->totals().damaged_entries, 0u);
}

TEST_F(Folder, AShardIsWholeOnlyWhenEveryByteIsThereAndThenGetsItsName) {
  auto folder = Open();
  for (uint64_t number = 0; number < 32; ++number) {
    EXPECT_FALSE(folder->IsWhole(0));
    ASSERT_TRUE(Put(*folder, number));
  }
  ASSERT_TRUE(folder->IsWhole(0));
  ASSERT_TRUE(folder->Publish(0));
  EXPECT_EQ(folder->PathOf(0), path() + "/a.safetensors");
  EXPECT_FALSE(std::ifstream(shard()).is_open());
  EXPECT_TRUE(std::ifstream(path() + "/a.safetensors").is_open());
}

}  // namespace
}  // namespace deltafin
