// Reading allocates nothing once the scheduler runs, by whatever thread.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "io/io_scheduler.h"
#include "io/test_file.h"
#include "support/count_allocations.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

class IoAllocations : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engines, IoAllocations, testing::Values("uring", "pread"),
                         [](const auto& info) { return info.param; });

TEST_P(IoAllocations, ReadsAllocateNothing) {
  Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = GetParam(), .depth = 8});
  if (!engine) GTEST_SKIP() << engine.error().message();
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/shard", 1'000'000);
  const Result<DirectFile> file = DirectFile::Open(folder.path() + "/shard");
  ASSERT_TRUE(file);
  const AlignedBuffer buffer = test::MakeBuffer(16 << 20);
  std::atomic<int> good{0};
  {
    IoScheduler scheduler(std::move(*engine), {.chunk_bytes = 64 * 1024, .window_bytes = 256 * 1024});
    const auto read_all = [&] {
      for (uint64_t i = 0; i < 50; ++i)
        scheduler.Read({&*file, i * 10'007, 200'000, buffer.data() + i * 262'144}, 0, IoPriority::kDemand, 1,
                       [&good](const Status& status) { good += status.has_value(); });
    };
    read_all();
    while (good.load() < 50) std::this_thread::yield();
    const int64_t before = test::Allocations();
    read_all();
    while (good.load() < 100) std::this_thread::yield();
    EXPECT_EQ(test::Allocations() - before, 0);
  }
  EXPECT_TRUE(
      test::HoldsBytesFrom({buffer.data() + 49 * 262'144 + 49 * 10'007 % file->alignment(), 200'000}, 49 * 10'007));
}

TEST_P(IoAllocations, ReadsOfManyPartsWithCopiesAllocateNothing) {
  Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = GetParam(), .depth = 16});
  if (!engine) GTEST_SKIP() << engine.error().message();
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/a", 1 << 20);
  test::WriteTestFile(folder.path() + "/b", 1 << 20);
  const Result<DirectFile> first = DirectFile::Open(folder.path() + "/a");
  const Result<DirectFile> second = DirectFile::Open(folder.path() + "/b");
  ASSERT_TRUE(first && second);
  const AlignedBuffer buffer = test::MakeBuffer(16 << 20);
  constexpr uint64_t kPart = 64 * 1024;
  constexpr int kReads = 30;
  std::atomic<int> good{0};
  {
    IoScheduler scheduler(std::move(*engine), {.drives = {{"a", 1e9}, {"b", 1e8}, {"c", 0}}});
    const IoTag tag = scheduler.NewTag();
    const auto read_all = [&] {
      for (uint64_t i = 0; i < kReads; ++i) {
        std::array<ReadPart, 8> parts;
        for (uint64_t p = 0; p < parts.size(); ++p) {
          std::byte* to = buffer.data() + (i * parts.size() + p) * kPart;
          parts[p] = {{&*first, p * kPart, kPart, to}, static_cast<int32_t>(p % 2), {&*second, p * kPart, 2}};
        }
        scheduler.Read(parts, IoPriority::kPrefetch, tag,
                       [&good](const Status& status) { good += status.has_value(); });
        scheduler.Raise(tag, IoPriority::kDemand);
      }
    };
    read_all();
    while (good.load() < kReads) std::this_thread::yield();
    const int64_t before = test::Allocations();
    read_all();
    while (good.load() < 2 * kReads) std::this_thread::yield();
    EXPECT_EQ(test::Allocations() - before, 0);
  }
  EXPECT_TRUE(test::HoldsBytesFrom({buffer.data() + (29 * 8 + 3) * kPart, kPart}, 3 * kPart));
}

}  // namespace
}  // namespace deltafin
