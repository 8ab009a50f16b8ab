#include "bench/timed_backend.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/reference/reference_backend.h"

namespace deltafin {
namespace {

TEST(TimedBackend, PassesOperationsOnAndCountsThem) {
  Result<std::unique_ptr<Backend>> reference = CreateReferenceBackend({.device = "reference"});
  ASSERT_TRUE(reference) << reference.error().message();
  BackendTimes times;
  const std::unique_ptr<Backend> backend = MakeTimedBackend(std::move(*reference), times);
  EXPECT_EQ(backend->name(), "reference");
  std::vector<float> x = {1, 2, 3}, out = {10, 20, 30};
  backend->Add({.x = ConstRows(x.data(), 1, 3), .out = Rows(out.data(), 1, 3)});
  EXPECT_EQ(out, (std::vector<float>{11, 22, 33}));
  backend->Copy({.x = ConstRows(x.data(), 1, 3), .out = Rows(out.data(), 1, 3)});
  EXPECT_EQ(out, x);
  EXPECT_TRUE(backend->Synchronize());
  EXPECT_EQ(times.operations, 2u);
  EXPECT_GT(times.total(), 0);
  EXPECT_EQ(times.total(), times.nanoseconds[static_cast<size_t>(TimedOperation::kOthers)]);
}

}  // namespace
}  // namespace deltafin
