#include "support/golden_file.h"

#include <gtest/gtest.h>

#include "support/test_data.h"

namespace deltafin::test {
namespace {

// Values as Python's struct module reads them from the file.
TEST(GoldenFile, ReadsTheRecordedValuesOfK3Micro) {
  const GoldenFile golden(RepoPath("tests/data/k3-micro/expected.golden"));
  EXPECT_EQ(golden.Names().size(), 40u);
  EXPECT_TRUE(golden.Has("logits"));
  EXPECT_FALSE(golden.Has("nothing"));
  EXPECT_EQ(golden.ShapeOf("embedding"), (Shape{11, 96}));
  EXPECT_EQ(golden.Floats("embedding").size(), 11u * 96);
  EXPECT_EQ(golden.ShapeOf("prompt_ids"), (Shape{11}));
  EXPECT_EQ(golden.Ints("prompt_ids").front(), 17);
  EXPECT_EQ(golden.Ints("prompt_ids").back(), 109);
  EXPECT_FLOAT_EQ(golden.Floats("logits").back(), 1.0498067140579224f);
}

}  // namespace
}  // namespace deltafin::test
