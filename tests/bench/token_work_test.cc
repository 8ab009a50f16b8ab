#include "bench/token_work.h"

#include <gtest/gtest.h>

#include "synth/shapes.h"

namespace deltafin {
namespace {

// By hand, from the widths: KDA 443,580,416 of each of three layers, MLA 232,194,048, dense feed-forward 726,663,168,
// what three mixtures of experts have beside their experts 184,188,928 each, residual mixes 14,336 a layer.
TEST(TokenWork, IsThatOfK3sWidths) {
  const Result<ModelSpec> spec = MakeSynthSpec({.name = "k3-slice"});
  ASSERT_TRUE(spec) << spec.error().message();
  const TokenWork work = WorkOfToken(*spec);
  EXPECT_EQ(work.dense_macs, 3 * 443'580'416.0 + 232'194'048.0 + 726'663'168.0 + 3 * 184'188'928.0 + 4 * 14'336.0);
  EXPECT_EQ(work.expert_macs, 3 * 16 * 33'030'144.0);
  EXPECT_EQ(work.head_macs, 2049 * 7168.0);
  EXPECT_EQ(work.macs(), 4'442'356'736.0);
  // Two bytes a weight; norms, biases and convolutions are what is more.
  const double matrices = 2 * (work.dense_macs + work.head_macs);
  EXPECT_GT(work.dense_bytes, matrices);
  EXPECT_LT(work.dense_bytes, matrices * 1.002);
}

}  // namespace
}  // namespace deltafin
