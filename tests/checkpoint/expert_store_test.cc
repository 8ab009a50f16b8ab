#include "checkpoint/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "base/aligned_buffer.h"
#include "checkpoint/micro_copy.h"
#include "spec/tensor_table.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kScaleOfExpert7 = "language_model.model.layers.1.block_sparse_moe.experts.7.w2.weight_scale";

// The bytes of one tensor, read past everything under test.
std::string TensorBytes(const MicroCopy& copy, int shard, const std::string& name) {
  const test::ForeignHeader header = test::ReadForeignHeader(copy.shard(shard));
  const Json& offsets = header.tensors.at(name)["data_offsets"];
  const auto begin = offsets[0].get<uint64_t>();
  return test::ReadRange(copy.shard(shard), header.data_start + begin, offsets[1].get<uint64_t>() - begin);
}

std::string View(const uint8_t* from, int64_t bytes) {
  return {reinterpret_cast<const char*>(from), static_cast<size_t>(bytes)};
}

class ExpertStoreTest : public ::testing::Test {
 protected:
  void Open(std::unique_ptr<IoEngine> engine, int expected_in_flight = 4) {
    Result<Checkpoint> opened = copy_.Open();
    ASSERT_TRUE(opened) << opened.error().message();
    checkpoint_.emplace(std::move(*opened));
    scheduler_.emplace(std::move(engine), IoSchedulerOptions{});
    store_.emplace(*checkpoint_, *scheduler_, ExpertStoreOptions{.expected_in_flight = expected_in_flight});
    slots_ = *AlignedBuffer::Create(64 * SlotStride(), false);
  }
  void OpenWithPread() {
    auto engine = CreateIoEngine({"pread", 8});
    ASSERT_TRUE(engine) << engine.error().message();
    Open(std::move(*engine));
  }
  uint64_t SlotStride() const { return AlignUp(store_->slot_bytes(), 65536); }
  Result<ExpertWeights> Fetch(ExpertKey key, int slot = 0) {
    std::promise<Result<ExpertWeights>> result;
    store_->Fetch(key, slots_.data() + static_cast<uint64_t>(slot) * SlotStride(), IoPriority::kDemand, 1,
                  [&](Result<ExpertWeights> weights) { result.set_value(std::move(weights)); });
    return result.get_future().get();
  }
  std::string FetchMessage(ExpertKey key) {
    const Result<ExpertWeights> weights = Fetch(key);
    return weights ? "fetched" : weights.error().message();
  }

  MicroCopy copy_;
  std::optional<Checkpoint> checkpoint_;
  AlignedBuffer slots_;
  std::optional<IoScheduler> scheduler_;
  std::optional<ExpertStore> store_;
};

void ExpectExpert(const MicroCopy& copy, int shard, ExpertKey key, const ExpertWeights& weights) {
  const auto name = [&](std::string_view part) { return ExpertTensorName(key.layer, key.expert, part); };
  EXPECT_EQ(View(weights.w1.packed, 1024), TensorBytes(copy, shard, name("w1.weight_packed")));
  EXPECT_EQ(View(weights.w1.scale, 64), TensorBytes(copy, shard, name("w1.weight_scale")));
  EXPECT_EQ(View(weights.w2.packed, 1024), TensorBytes(copy, shard, name("w2.weight_packed")));
  EXPECT_EQ(View(weights.w2.scale, 64), TensorBytes(copy, shard, name("w2.weight_scale")));
  EXPECT_EQ(View(weights.w3.packed, 1024), TensorBytes(copy, shard, name("w3.weight_packed")));
  EXPECT_EQ(View(weights.w3.scale, 64), TensorBytes(copy, shard, name("w3.weight_scale")));
}

TEST_F(ExpertStoreTest, FetchesTheBytesOfTheShards) {
  OpenWithPread();
  EXPECT_EQ(store_->record_bytes(), 3264u);
  EXPECT_GE(store_->slot_bytes(), 3264u + store_->slot_alignment() - 1);
  for (const ExpertKey key : {ExpertKey{1, 0}, ExpertKey{1, 39}, ExpertKey{3, 17}, ExpertKey{5, 39}}) {
    const Result<ExpertWeights> weights = Fetch(key);
    ASSERT_TRUE(weights) << weights.error().message();
    ExpectExpert(copy_, key.layer + 1, key, *weights);
  }
}

TEST_F(ExpertStoreTest, FollowsTheOrderOfTheTensorsInTheShard) {
  copy_.EditHeader(
      2,
      [](Json& header) {
        uint64_t at = header[kScaleOfExpert7]["data_offsets"][1].get<uint64_t>() - 2 * 1088;
        for (const char* part : {"w3.weight_packed", "w3.weight_scale", "w2.weight_packed", "w2.weight_scale",
                                 "w1.weight_packed", "w1.weight_scale"}) {
          Json& offsets = header[ExpertTensorName(1, 7, part)]["data_offsets"];
          const uint64_t bytes = offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>();
          offsets = {at, at + bytes};
          at += bytes;
        }
      },
      5);
  OpenWithPread();
  const Result<ExpertWeights> weights = Fetch({1, 7});
  ASSERT_TRUE(weights) << weights.error().message();
  ExpectExpert(copy_, 2, {1, 7}, *weights);
}

TEST_F(ExpertStoreTest, ManyFetchesMayBeInFlightInAnyOrder) {
  Open(std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 7}), 2);
  std::vector<std::promise<Result<ExpertWeights>>> results(40);
  for (int e = 0; e < 40; ++e) {
    store_->Fetch({2, e}, slots_.data() + static_cast<uint64_t>(e) * SlotStride(), IoPriority::kPrefetch, 0,
                  [&results, e](Result<ExpertWeights> w) { results[static_cast<size_t>(e)].set_value(std::move(w)); });
  }
  for (int e = 0; e < 40; ++e) {
    const Result<ExpertWeights> weights = results[static_cast<size_t>(e)].get_future().get();
    ASSERT_TRUE(weights) << weights.error().message();
    ExpectExpert(copy_, 3, {2, e}, *weights);
  }
}

TEST_F(ExpertStoreTest, AScaleOf255NamesLayerExpertMatrixRowFileAndByte) {
  const test::ForeignHeader header = test::ReadForeignHeader(copy_.shard(2));
  const uint64_t offset =
      header.data_start + header.tensors.at(kScaleOfExpert7)["data_offsets"][0].get<uint64_t>() + 41;
  copy_.Poke(MicroCopy::ShardName(2), offset, 255);
  OpenWithPread();
  const Result<ExpertWeights> weights = Fetch({1, 7});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(weights.error().message(),
              AllOf(HasSubstr("layer 1, expert 7, w2.weight_scale, row 41"), HasSubstr(copy_.shard(2)),
                    HasSubstr(Cat("byte ", offset)), HasSubstr("expected a scale from 0 to 254, got 255")));
  EXPECT_EQ(FetchMessage({1, 8}), "fetched");
}

TEST_F(ExpertStoreTest, AFailedReadNamesLayerAndExpert) {
  auto engine = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{});
  engine->SetFault([](const ReadRequest&) -> Status { return Fail(ErrorCode::kIo, "the drive is gone"); });
  Open(std::move(engine));
  const Result<ExpertWeights> weights = Fetch({4, 2});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kIo);
  EXPECT_THAT(weights.error().message(), AllOf(HasSubstr("layer 4, expert 2"), HasSubstr("the drive is gone")));
}

TEST_F(ExpertStoreTest, TheDestructorWaitsForFetchesInFlight) {
  Open(std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 3, .max_delay_us = 20000}));
  std::atomic<int> done = 0;
  for (int e = 0; e < 8; ++e)
    store_->Fetch({1, e}, slots_.data() + static_cast<uint64_t>(e) * SlotStride(), IoPriority::kDemand, 0,
                  [&](Result<ExpertWeights>) { ++done; });
  store_.reset();
  EXPECT_EQ(done, 8);
}

}  // namespace
}  // namespace deltafin
