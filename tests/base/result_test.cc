#include "base/result.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace deltafin {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "value ", value, ": expected an even number");
  return value / 2;
}

Result<int> Quarter(int value) {
  DFIN_TRY(const int half, Half(value));
  DFIN_TRY(const int quarter, Half(half));
  return quarter;
}

TEST(Result, TryReturnsTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  const Result<int> bad = Quarter(6);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message(), "value 3: expected an even number");
}

TEST(Error, ContextIsOutermostFirst) {
  const Error error = Error(ErrorCode::kIo, "read failed").WithContext("shard 3").WithContext("opening model");
  EXPECT_EQ(error.message(), "opening model: shard 3: read failed");
}

TEST(Logger, WarnOnceSaysItOnce) {
  int lines = 0;
  Logger logger([&](const std::string&) { ++lines; });
  logger.WarnOnce("a");
  logger.WarnOnce("a");
  logger.WarnOnce("b");
  EXPECT_EQ(lines, 2);
}

}  // namespace
}  // namespace deltafin
