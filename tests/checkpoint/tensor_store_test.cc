#include "checkpoint/tensor_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "checkpoint/micro_copy.h"
#include "spec/tensor_table.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kUnits = 7;  // six layers and the head

ResidencyPlan AllResident() { return {std::vector<bool>(kUnits, true), true, 0}; }
ResidencyPlan AllStreamed(int buffers = 2) { return {std::vector<bool>(kUnits, false), false, buffers}; }
ResidencyPlan Mixed() { return {{true, false, true, false, false, true, false}, true, 3}; }

class TensorStoreTest : public ::testing::Test {
 protected:
  // The engine lives in the scheduler; the pointer is for holding reads back and for faults.
  void Open(test::FakeIoOptions options = {.seed = 5}) {
    Result<Checkpoint> opened = copy_.Open();
    ASSERT_TRUE(opened) << opened.error().message();
    scheduler_.reset();  // it may still be reading ahead in the files of the checkpoint before
    checkpoint_.emplace(std::move(*opened));
    auto engine = std::make_unique<test::FakeIoEngine>(options);
    engine_ = engine.get();
    scheduler_.emplace(std::move(engine), IoSchedulerOptions{.chunk_bytes = 16384, .window_bytes = 65536});
  }
  std::unique_ptr<TensorStore> Create(const ResidencyPlan& plan) {
    auto store = TensorStore::Create(*checkpoint_, *scheduler_, plan, {}, {});
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }

  // The tensor's bytes through the pin, against the file.
  void ExpectTensor(const UnitPin& pin, const std::string& full_name, std::string_view short_name) const {
    const TensorPlace& place = checkpoint_->Dense(full_name);
    const TensorView view = pin.Get(short_name);
    EXPECT_EQ(view.dtype, place.dtype) << full_name;
    EXPECT_EQ(view.shape, place.shape) << full_name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(ByteSize(view.dtype)), 0u) << full_name;
    const std::string expected = test::ReadRange(checkpoint_->shard(place.shard).path(), place.offset, place.bytes);
    const std::string got(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
    EXPECT_TRUE(got == expected) << full_name;
  }
  void ExpectUnit(TensorStore& store, int unit) const {
    const Result<UnitPin> pin = store.PinUnit(unit);
    ASSERT_TRUE(pin) << pin.error().message();
    const bool is_head = unit == kUnits - 1;
    for (const std::string& name : checkpoint_->DenseNames(is_head ? -1 : unit)) {
      if (name == kEmbedTokens) continue;
      ExpectTensor(*pin, name,
                   is_head ? std::string_view(name) : std::string_view(name).substr(LayerTensorName(unit, "").size()));
    }
  }
  void ExpectEmbedding(TensorStore& store, const std::vector<TokenId>& ids) const {
    const TensorPlace& place = checkpoint_->Dense(kEmbedTokens);
    const Result<TensorView> rows = store.EmbeddingRows(ids);
    ASSERT_TRUE(rows) << rows.error().message();
    EXPECT_EQ(rows->shape, (Shape{static_cast<int64_t>(ids.size()), 96}));
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string expected = test::ReadRange(checkpoint_->shard(place.shard).path(),
                                                   place.offset + static_cast<uint64_t>(ids[i]) * 192, 192);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(rows->data) + i * 192, 192), expected) << "id " << ids[i];
    }
  }

  // Payload of a unit (the head without the embedding table), and of all dense tensors.
  uint64_t UnitBytes(int unit) const {
    uint64_t bytes = 0;
    for (const std::string& name : checkpoint_->DenseNames(unit == kUnits - 1 ? -1 : unit))
      if (name != kEmbedTokens) bytes += checkpoint_->Dense(name).bytes;
    return bytes;
  }
  uint64_t DenseBytes() const {
    uint64_t bytes = checkpoint_->Dense(kEmbedTokens).bytes;
    for (int unit = 0; unit < kUnits; ++unit) bytes += UnitBytes(unit);
    return bytes;
  }
  const DirectFile* FileOf(int layer) const {
    return &checkpoint_->shard(checkpoint_->Dense(checkpoint_->DenseNames(layer)[0]).shard);
  }

  MicroCopy copy_;
  std::optional<Checkpoint> checkpoint_;
  test::FakeIoEngine* engine_ = nullptr;
  std::optional<IoScheduler> scheduler_;
};

struct PlanCase {
  const char* name;
  ResidencyPlan plan;
};
class TensorStorePlans : public TensorStoreTest, public ::testing::WithParamInterface<PlanCase> {};

TEST_P(TensorStorePlans, GiveTheBytesOfTheFilesPassAfterPass) {
  Open();
  const auto store = Create(GetParam().plan);
  for (int pass = 0; pass < 3; ++pass) {
    ExpectEmbedding(*store, {0, 511, 7, 7, 256});
    for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
  }
}

TEST_P(TensorStorePlans, AllowAnyOrderOfPins) {
  Open({.seed = 9, .max_delay_us = 2000});
  const auto store = Create(GetParam().plan);
  for (const int unit : {3, 3, 0, 6, 5, 1, 2, 6, 4, 4, 1, 0, 5, 3}) ExpectUnit(*store, unit);
}

TEST_P(TensorStorePlans, HoldWhenDataStartsAtAnOddByte) {
  for (int shard = 1; shard <= 7; ++shard) {
    copy_.EditHeader(shard, [](Json&) {});
    const bool is_even = test::ReadForeignHeader(copy_.shard(shard)).data_start % 2 == 0;
    copy_.EditHeader(
        shard, [](Json&) {}, is_even ? 1 : 2);
    ASSERT_EQ(test::ReadForeignHeader(copy_.shard(shard)).data_start % 2, 1u);
  }
  Open();
  const auto store = Create(GetParam().plan);
  ExpectEmbedding(*store, {1, 2, 500});
  for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
}

TEST_P(TensorStorePlans, CountStreamedBytes) {
  Open();
  const ResidencyPlan& plan = GetParam().plan;
  const auto store = Create(plan);
  for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
  const bool all_resident = plan.ring_buffers == 0;
  EXPECT_EQ(store->streamed_bytes() == 0, all_resident);
}

INSTANTIATE_TEST_SUITE_P(Plans, TensorStorePlans,
                         ::testing::Values(PlanCase{"Resident", AllResident()}, PlanCase{"Streamed", AllStreamed()},
                                           PlanCase{"StreamedThroughFive", AllStreamed(5)},
                                           PlanCase{"MoreBuffersThanUnits", AllStreamed(9)}, PlanCase{"Mixed", Mixed()},
                                           PlanCase{"OneStreamed",
                                                    {{true, true, true, true, false, true, true}, false, 2}}),
                         [](const auto& test) { return test.param.name; });

// The dense tensors of k3-micro are contiguous after the experts, except where a run ends.
TEST_F(TensorStoreTest, NeverReadsAnExpertsBytes) {
  Open();
  const auto store = Create(AllStreamed());
  for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
  for (const ReadRequest& read : engine_->submitted()) {
    for (int layer = 1; layer < 6; ++layer) {
      const ExpertPlace& first = checkpoint_->Expert({layer, 0});
      const ExpertPlace& last = checkpoint_->Expert({layer, 39});
      if (read.file != &checkpoint_->shard(first.shard)) continue;
      const uint64_t begin = std::min(first.offset, last.offset), end = std::max(first.offset, last.offset) + 3264;
      EXPECT_TRUE(read.offset >= end || read.offset + read.bytes <= begin) << read.file->path() << " " << read.offset;
    }
  }
}

TEST_F(TensorStoreTest, StreamsEveryDenseByteOnceAPass) {
  Open();
  const auto store = Create(AllStreamed());
  for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
  // Without the embedding table; the first two units of the next pass are on their way and not counted yet.
  const uint64_t pass = DenseBytes() - 512 * 192;
  EXPECT_EQ(store->streamed_bytes(), pass);
  EXPECT_GE(scheduler_->counters().device_bytes, pass);
}

TEST_F(TensorStoreTest, CountsAUnitWhenItIsPinnedAndNotWhenItIsReadAhead) {
  Open();
  const auto store = Create(AllStreamed());
  EXPECT_EQ(store->streamed_bytes(), 0u);
  const uint64_t third = UnitBytes(3), fifth = UnitBytes(5);
  {
    const Result<UnitPin> pin = store->PinUnit(3);
    ASSERT_TRUE(pin);
    EXPECT_EQ(store->streamed_bytes(), third);
    ExpectUnit(*store, 3);  // in its buffer
    EXPECT_EQ(store->streamed_bytes(), third);
  }
  ExpectUnit(*store, 5);
  ExpectUnit(*store, 0);
  ExpectUnit(*store, 3);
  EXPECT_EQ(store->streamed_bytes(), 2 * third + fifth + UnitBytes(0));
}

TEST_F(TensorStoreTest, AFailedReadIsNotCounted) {
  Open();
  const auto store = Create(AllStreamed());
  const DirectFile* file = FileOf(4);
  engine_->SetFault([file](const ReadRequest& read) -> Status {
    if (read.file == file) return Fail(ErrorCode::kIo, "the drive is gone");
    return {};
  });
  EXPECT_FALSE(store->PinUnit(4));
  EXPECT_EQ(store->streamed_bytes(), 0u);
  engine_->SetFault(nullptr);
}

// Calls `wait` on this thread, cancels after a moment, and expects it to come back though no read ends.
void ExpectCancelled(const std::function<ErrorCode(CancelToken)>& wait) {
  CancelSource cancel;
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cancel.Cancel();
  });
  EXPECT_EQ(wait(cancel.token()), ErrorCode::kCancelled);
  user.join();
}

TEST_F(TensorStoreTest, APinCanBeCancelledWhileADriveHangs) {
  Open();
  engine_->Hold();
  const auto store = Create(AllStreamed());
  const auto pin = [&](int unit) {
    return [&store, unit](CancelToken cancel) {
      const Result<UnitPin> pinned = store->PinUnit(unit, cancel);
      return pinned ? ErrorCode::kInternal : pinned.error().code();
    };
  };
  // Of a unit that is on its way, then of others: every buffer is being written to.
  for (const int unit : {0, 4, 0, 5, 6, 1}) ExpectCancelled(pin(unit));
  engine_->Release();
  for (const int unit : {5, 0, 1, 2, 3, 4, 5, 6}) ExpectUnit(*store, unit);
}

TEST_F(TensorStoreTest, ACancelledPinOfAnyUnitLeavesTheStoreInOrder) {
  Open({.seed = 11, .max_delay_us = 3000});
  const auto store = Create(AllStreamed(3));
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    CancelSource cancel;
    cancel.Cancel();
    const int unit = static_cast<int>(random() % kUnits);
    const Result<UnitPin> pin = store->PinUnit(unit, cancel.token());
    EXPECT_EQ(pin ? ErrorCode::kCancelled : pin.error().code(), ErrorCode::kCancelled);
    if (round % 3 == 0) ExpectUnit(*store, static_cast<int>(random() % kUnits));
  }
  for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
}

TEST_F(TensorStoreTest, EmbeddingRowsCanBeCancelledWhileADriveHangs) {
  Open();
  const auto store = Create({std::vector<bool>(kUnits, true), false, 0});
  engine_->Hold();
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{1, 2}, std::vector<TokenId>(40, 7)}) {
    ExpectCancelled([&](CancelToken cancel) {
      const Result<TensorView> rows = store->EmbeddingRows(ids, cancel);
      return rows ? ErrorCode::kInternal : rows.error().code();
    });
  }
  engine_->Release();
  ExpectEmbedding(*store, {3, 9, 500});
}

TEST_F(TensorStoreTest, TheDestructorWaitsForReadsOfACancelledCall) {
  Open();
  auto store = Create(AllStreamed());
  engine_->Hold();
  CancelSource cancel;
  cancel.Cancel();
  EXPECT_FALSE(store->EmbeddingRows(std::vector<TokenId>{1, 2}, cancel.token()));
  EXPECT_FALSE(store->PinUnit(5, cancel.token()));
  std::thread drive([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    engine_->Release();
  });
  store.reset();
  drive.join();
}

TEST_F(TensorStoreTest, AHeadThatIsNotExpectedIsNotReadAhead) {
  for (const int buffers : {2, 3, 9}) {
    Open();
    const auto store = Create(AllStreamed(buffers));
    if (buffers > kUnits) continue;  // everything is read at once
    const TensorPlace& head = checkpoint_->Dense("language_model.lm_head.weight");
    const auto head_reads = [&] {
      const std::vector<ReadRequest> reads = engine_->submitted();
      return std::count_if(reads.begin(), reads.end(), [&](const ReadRequest& r) {
        return r.file == &checkpoint_->shard(head.shard) && r.offset < head.offset + head.bytes &&
               r.offset + r.bytes > head.offset;
      });
    };
    store->ExpectHead(false);
    for (int pass = 0; pass < 2; ++pass)
      for (int unit = 0; unit + 1 < kUnits; ++unit) ExpectUnit(*store, unit);
    EXPECT_EQ(head_reads(), 0) << buffers;
    ExpectUnit(*store, kUnits - 1);  // pinned all the same
    const auto once = head_reads();
    EXPECT_GT(once, 0);
    store->ExpectHead(true);
    for (int unit = 0; unit < kUnits; ++unit) ExpectUnit(*store, unit);
    EXPECT_EQ(head_reads(), 2 * once) << buffers;
  }
}

TEST_F(TensorStoreTest, ReadsAheadWhileAUnitIsPinned) {
  Open();
  const auto store = Create(AllStreamed(3));
  const Result<UnitPin> pin = store->PinUnit(0);
  ASSERT_TRUE(pin);
  const Checkpoint& checkpoint = *checkpoint_;
  const auto reads_of = [&](int layer) {
    const std::vector<ReadRequest> reads = engine_->submitted();
    const DirectFile* file = &checkpoint.shard(checkpoint.Dense(checkpoint.DenseNames(layer)[0]).shard);
    return std::count_if(reads.begin(), reads.end(), [&](const ReadRequest& r) { return r.file == file; });
  };
  while (reads_of(1) == 0 || reads_of(2) == 0) std::this_thread::yield();
  EXPECT_EQ(reads_of(3), 0);
}

TEST_F(TensorStoreTest, SeveralUnitsMayBePinnedAtOnce) {
  Open();
  const auto store = Create(AllStreamed(3));
  const Result<UnitPin> first = store->PinUnit(1);
  const Result<UnitPin> second = store->PinUnit(4);
  ASSERT_TRUE(first && second);
  ExpectUnit(*store, 0);
  ExpectTensor(*first, LayerTensorName(1, "input_layernorm.weight"), "input_layernorm.weight");
  ExpectTensor(*second, LayerTensorName(4, "self_attn.A_log"), "self_attn.A_log");
}

TEST_F(TensorStoreTest, APinCanBeMoved) {
  Open();
  const auto store = Create(AllStreamed());
  Result<UnitPin> pin = store->PinUnit(2);
  ASSERT_TRUE(pin);
  UnitPin moved;
  moved = std::move(*pin);
  ExpectTensor(moved, LayerTensorName(2, "self_attn.q_a_layernorm.weight"), "self_attn.q_a_layernorm.weight");
}

TEST_F(TensorStoreTest, AFailedReadNamesTheLayerAndTheUnitCanBePinnedAgain) {
  Open();
  const auto store = Create(AllStreamed());
  ExpectUnit(*store, 0);
  const DirectFile* file = FileOf(4);
  engine_->SetFault([file](const ReadRequest& read) -> Status {
    if (read.file == file) return Fail(ErrorCode::kIo, "the drive is gone");
    return {};
  });
  for (int unit = 1; unit < 4; ++unit) ExpectUnit(*store, unit);
  const Result<UnitPin> pin = store->PinUnit(4);
  ASSERT_FALSE(pin);
  EXPECT_EQ(pin.error().code(), ErrorCode::kIo);
  EXPECT_THAT(pin.error().message(), AllOf(HasSubstr("dense weights of layer 4"), HasSubstr("the drive is gone")));
  engine_->SetFault(nullptr);
  ExpectUnit(*store, 4);
  ExpectUnit(*store, 5);
}

TEST_F(TensorStoreTest, AFailedReadEndsTheLoad) {
  Open();
  engine_->SetFault([](const ReadRequest&) -> Status { return Fail(ErrorCode::kIo, "the drive is gone"); });
  const auto store = TensorStore::Create(*checkpoint_, *scheduler_, AllResident(), {}, {});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), ErrorCode::kIo);
  EXPECT_THAT(store.error().message(), AllOf(HasSubstr("loading the dense weights"), HasSubstr("the drive is gone")));
}

TEST_F(TensorStoreTest, AFailedEmbeddingReadIsAnError) {
  Open();
  const auto store = Create(AllStreamed());
  engine_->SetFault([](const ReadRequest&) -> Status { return Fail(ErrorCode::kIo, "the drive is gone"); });
  const std::vector<TokenId> ids = {1};
  EXPECT_THAT(store->EmbeddingRows(ids).error().message(), AllOf(HasSubstr("embedding table"), HasSubstr("the drive is gone")));
}

TEST_F(TensorStoreTest, AnIdOutsideTheVocabularyIsAnError) {
  Open();
  for (const ResidencyPlan& plan : {AllResident(), AllStreamed()}) {
    const auto store = Create(plan);
    for (const TokenId id : {-1, 512}) {
      const std::vector<TokenId> ids = {0, id};
      EXPECT_THAT(store->EmbeddingRows(ids).error().message(), HasSubstr(Cat("from 0 to 511, got ", id)));
    }
  }
}

TEST_F(TensorStoreTest, NoIdsGiveNoRows) {
  Open();
  const auto store = Create(AllStreamed());
  EXPECT_EQ(store->EmbeddingRows({})->shape, (Shape{0, 96}));
}

TEST_F(TensorStoreTest, LoadingReportsItsProgress) {
  Open();
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  const auto store = TensorStore::Create(*checkpoint_, *scheduler_, AllResident(),
                                         [&](uint64_t done, uint64_t total) { seen.emplace_back(done, total); }, {});
  ASSERT_TRUE(store);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().first, DenseBytes());
  EXPECT_EQ(seen.back().second, DenseBytes());
}

TEST_F(TensorStoreTest, LoadingCanBeCancelled) {
  Open();
  engine_->Hold();
  CancelSource cancel;
  const auto progress = [&](uint64_t, uint64_t) {
    cancel.Cancel();
    engine_->Release();
  };
  const auto store = TensorStore::Create(*checkpoint_, *scheduler_, AllResident(), progress, cancel.token());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), ErrorCode::kCancelled);
}

TEST_F(TensorStoreTest, UnitsAndEmbeddingTakeAtLeastTheirBytes) {
  Open();
  const std::vector<uint64_t> units = TensorStore::UnitBytes(*checkpoint_);
  ASSERT_EQ(units.size(), static_cast<size_t>(kUnits));
  for (int unit = 0; unit < kUnits; ++unit) EXPECT_GE(units[static_cast<size_t>(unit)], UnitBytes(unit));
  EXPECT_GE(TensorStore::EmbeddingBytes(*checkpoint_), 512u * 192);
}

TEST_F(TensorStoreTest, MayBeDroppedWhileReadsAreInFlight) {
  Open({.seed = 2, .max_delay_us = 20000});
  Create(AllStreamed(4)).reset();
  EXPECT_EQ(scheduler_->counters().errors, 0u);
}

}  // namespace
}  // namespace deltafin
