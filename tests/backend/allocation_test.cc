// No operation of the CPU backend allocates.
#include <gtest/gtest.h>

#include <functional>

#include "backend_fixture.h"
#include "support/count_allocations.h"

namespace deltafin::test {
namespace {

class Allocation : public testing::TestWithParam<std::string> {
 protected:
  static int64_t Count(const std::function<void()>& operation) {
    const int64_t before = Allocations();
    operation();
    return Allocations() - before;
  }

  std::unique_ptr<Backend> backend_ = MakeCpu(GetParam(), 2);
  Random random_{40};
};
INSTANTIATE_TEST_SUITE_P(All, Allocation, testing::ValuesIn(Isas()), [](const auto& info) { return info.param; });

TEST_P(Allocation, TheCounterCounts) {
  EXPECT_GT(Count([] { static_cast<void>(std::vector<int>(1000)); }), 0);
}

TEST_P(Allocation, DenseOperationsAllocateNothing) {
  const int64_t rows = 7, width = 200;
  const Weight weight = Weight::Bf16(random_, {50, width}), vector = Weight::Bf16(random_, {width});
  const Activations x(random_, rows, width);
  Activations out(rows, 50), same(rows, width), scores(rows, 50);
  const Weight bias = Weight::F32(random_, {50});
  std::vector<int32_t> ids(rows * 4);
  std::vector<float> weights(rows * 4);
  const std::vector<TokenId> tokens(rows, 3);
  const ConstRows blocks[] = {x.view()};
  const LinearGroupArgs::Part parts[] = {{weight.view(), out.view()}, {weight.view(), scores.view()}};
  EXPECT_EQ(Count([&] { backend_->Embed({weight.view(), tokens, same.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->Linear({weight.view(), x.view(), out.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->LinearGroup({x.view(), parts}); }), 0);
  EXPECT_EQ(Count([&] { backend_->RmsNorm({x.view(), vector.view(), 1e-5f, same.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->SigmoidGate({same.view(), x.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->SituGlu({x.view(), x.view(), 4, 25, same.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->Copy({x.view(), same.view()}); }), 0);
  EXPECT_EQ(Count([&] { backend_->Add({x.view(), same.view()}); }), 0);
  EXPECT_EQ(Count([&] {
              backend_->MixResiduals({blocks, x.view(), vector.view(), vector.view(), 1e-5f, same.view()});
            }),
            0);
  EXPECT_EQ(Count([&] {
              backend_->Router({x.view(), weight.view(), bias.view(), 4, 1, scores.view(), ids, weights});
            }),
            0);
}

TEST_P(Allocation, SequenceAndExpertOperationsAllocateNothing) {
  const int64_t rows = 6, heads = 2, dim = 64, width = heads * dim;
  const Activations x(random_, rows, width), beta(random_, rows, heads), cache(random_, rows, 40 + 16);
  Activations out(rows, width), tail(3, width), state(width, dim);
  const Weight kernel = Weight::F32(random_, {width, 4}), a_log = Weight::F32(random_, {heads}),
               dt_bias = Weight::F32(random_, {width}), norm = Weight::F32(random_, {dim}),
               kv_b_proj = Weight::Bf16(random_, {heads * (48 + 64), 40});
  const Mxfp4Matrix up(random_, 96, width), down(random_, width, 96);
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5}, order(static_cast<size_t>(rows), 0);
  const std::vector<float> weights(static_cast<size_t>(rows), 1.0f);
  const float* const page = cache.view().data;
  const PagedRows latents = {&page, 64, 0, rows, cache.width, cache.stride};
  EXPECT_EQ(Count([&] { backend_->ShortConv({x.view(), kernel.view(), tail.view(), tail.view(), out.view()}); }), 0);
  EXPECT_EQ(Count([&] {
              backend_->Kda({x.view(), x.view(), x.view(), x.view(), beta.view(), a_log.view(), dt_bias.view(), -5,
                             heads, dim, state.values.data(), state.values.data(), out.view()});
            }),
            0);
  EXPECT_EQ(Count([&] { backend_->GatedHeadNorm({x.view(), x.view(), norm.view(), 1e-5f, heads, out.view()}); }), 0);
  EXPECT_EQ(Count([&] {
              backend_->MlaAttend({x.view(), kv_b_proj.view(), latents, 0, heads, 48, 16, 64, 40, out.view()});
            }),
            0);
  EXPECT_EQ(Count([&] {
              backend_->ExpertMlp({up.view(), up.view(), down.view(), 4, 25, x.view(), all, out.view(), all});
            }),
            0);
  EXPECT_EQ(Count([&] { backend_->CombineExperts({x.view(), weights, order, 1, out.view()}); }), 0);
}

}  // namespace
}  // namespace deltafin::test
