#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

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

}  // namespace
}  // namespace deltafin
