// Reading allocates nothing once the scheduler runs, by whatever thread.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace deltafin
