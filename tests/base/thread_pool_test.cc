#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "base/topology.h"

namespace deltafin {
namespace {

struct Case {
  int threads;
  int64_t n;
  int64_t grain;
};

class ParallelFor : public testing::TestWithParam<Case> {};

TEST_P(ParallelFor, VisitsEveryIndexOnceInWholeGrains) {
  const Case c = GetParam();
  ThreadPool pool(c.threads);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(c.n));
    std::atomic<bool> bad_border{false};
    pool.ParallelFor(c.n, c.grain, [&](int64_t begin, int64_t end, int worker) {
      if (begin % c.grain != 0 || worker < 0 || worker >= c.threads) bad_border = true;
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_FALSE(bad_border);
    for (const auto& v : visits) ASSERT_EQ(v.load(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ParallelFor,
                         testing::Values(Case{1, 10, 1}, Case{2, 1, 1}, Case{2, 7, 4}, Case{3, 100, 16}, Case{4, 3, 1},
                                         Case{4, 1000, 1}, Case{4, 0, 1}));

TEST(ThreadPool, WorksAgainAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the workers spin
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum.load(), 4950);
  }
}

// The caller takes what workers have not begun: with far more threads than processors most parts.
TEST(ThreadPool, KeepsItsPromisesWithMoreThreadsThanProcessors) {
  const int threads = 4 * UsableCores() + 3;
  ThreadPool pool(threads);
  for (int64_t round = 0; round < 2000; ++round) {
    const int64_t n = 1 + round % 97;
    std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
    std::atomic<bool> bad_worker{false};
    pool.ParallelFor(n, 1 + round % 3, [&](int64_t begin, int64_t end, int worker) {
      if (worker < 0 || worker >= threads) bad_worker = true;
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_FALSE(bad_worker);
    for (const auto& v : visits) ASSERT_EQ(v.load(), 1);
  }
}

// `worker` chooses scratch memory, so no two parts run as the same worker at once.
TEST(ThreadPool, NeverRunsTwoPartsAsOneWorkerAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> twice{false};
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(4, 1, [&](int64_t, int64_t, int worker) {
      if (inside[static_cast<size_t>(worker)].fetch_add(1) != 0) twice = true;
      inside[static_cast<size_t>(worker)].fetch_sub(1);
    });
  }
  EXPECT_FALSE(twice);
}

// The cut is a function of n, grain and threads, whoever runs the parts.
TEST(ThreadPool, CutsTheSameWayEveryTime) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> ends(1000, -1);
    pool.ParallelFor(100, 8, [&](int64_t begin, int64_t end, int) { ends[static_cast<size_t>(begin)] = end; });
    // 13 grains of 8: 5, 5 and 3 of them, too short for parts.
    EXPECT_EQ(ends[0], 40);
    EXPECT_EQ(ends[40], 80);
    EXPECT_EQ(ends[80], 100);
    ends.assign(1000, -1);
    pool.ParallelFor(1000, 8, [&](int64_t begin, int64_t end, int) { ends[static_cast<size_t>(begin)] = end; });
    // 125 grains: shares of 42, 42 and 41, parts of 11 each but the last.
    EXPECT_EQ(ends[0], 88);
    EXPECT_EQ(ends[264], 336);
    EXPECT_EQ(ends[336], 424);
    EXPECT_EQ(ends[936], 1000);
  }
}

// A worker whose processor is slow, or taken away, keeps only the part that it has begun.
TEST(ThreadPool, OthersTakeWhatASlowWorkerHasNotBegun) {
  ThreadPool pool(2);
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> parts{0}, of_worker{0};
    std::atomic<bool> begun{false};
    pool.ParallelFor(64, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 1) {
        begun = true;
        ++of_worker;
        while (parts < 7) std::this_thread::yield();  // all others
      } else {
        while (!begun) std::this_thread::yield();
      }
      ++parts;
    });
    EXPECT_EQ(parts, 8);
    EXPECT_EQ(of_worker, 1);
  }
}

// With all workers asleep, and after a loop that took one worker longer than anybody looks.
TEST(ThreadPool, WaitsAsleepForAPartThatTakesLong) {
  ThreadPool pool(2);
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> done{0};
    std::atomic<bool> begun{false};
    pool.ParallelFor(2, 1, [&](int64_t begin, int64_t, int worker) {
      // The caller's part lasts until the other one has begun, so that a worker has it.
      while (begin == 0 && !begun) std::this_thread::yield();
      if (begin == 1) {
        EXPECT_EQ(worker, 1);
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      ++done;
    });
    EXPECT_EQ(done, 2);
  }
}

TEST(ThreadPool, RunsPinnedOrSaysWhyNot) {
  const ThreadPlacement placement = PlaceThreads(MachineTopology(), 0);
  if (placement.cpus.empty() || placement.threads < 2) GTEST_SKIP() << "one core, or a system that does not pin";
  ThreadPool pool(placement.threads);
  const Status pinned = pool.PinWorkers(placement.cpus);
  if (!pinned) GTEST_SKIP() << pinned.error().message();
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 100; ++round)
    pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
  EXPECT_EQ(sum.load(), 100 * 4950);
}

TEST(ThreadPool, RefusesAProcessorThatIsNotThere) {
  ThreadPool pool(2);
  const int nowhere[] = {0, 4000};
  const Status pinned = pool.PinWorkers(nowhere);
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace deltafin
