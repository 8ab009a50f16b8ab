// With --pack-to a download takes two shards of room beside what stays, at any time.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "setup/setup_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

// What the files below `folder` take on their drive.
uint64_t TakenBy(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    bytes += AllocatedBytes(it->path().string());
  return bytes;
}

TEST(SetupSpace, APackedDownloadTakesTwoShardsBesideWhatStays) {
  const auto files = HubServer::FilesOf(RepoPath("models/k3-nano"));
  HubServer server(files);
  const TempFolder folder;
  const std::string to = folder.path() + "/fetched";
  std::mutex mutex;
  uint64_t peak = 0;
  SetupOptions options = OptionsFor(to);
  options.any_model = false;
  options.range_bytes = 1 << 20;
  options.pack.targets = {{folder.path() + "/d1", 3e9}, {folder.path() + "/d2", 2e9}};
  options.hook = [&](DiskStep, const std::string&) -> Status {
    const std::lock_guard lock(mutex);
    peak = std::max(peak, TakenBy(to));
    return {};
  };
  HubAccess access(server, 5);
  const auto report = FetchModel(*access.source, options, {}, {});
  ASSERT_TRUE(report) << report.error().message();
  uint64_t largest = 0, shards = 0;  // the largest of those with experts
  for (const auto& [name, contents] : files) {
    if (!name.ends_with(".safetensors")) continue;
    shards += contents.size();
    if (fs::file_size(to + "/" + name) < contents.size()) largest = std::max<uint64_t>(largest, contents.size());
  }
  const uint64_t stays = TakenBy(to), slack = 256 * 1024;  // blocks, and lists that are being written
  EXPECT_LE(peak, stays + 2 * largest + slack);
  EXPECT_GT(peak, stays + largest / 4) << "something was measured";
  EXPECT_GT(shards, stays + 2 * largest + slack) << "the bound says something";
}

}  // namespace
}  // namespace deltafin::test
