// Dense weights on a drive that hangs: an error soon, nothing written into memory that somebody else uses, nobody who
// waits for the drive, and all is well once it answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/aligned_buffer.h"
#include "checkpoint/expert_model_id.h"
#include "checkpoint/micro_copy.h"
#include "checkpoint/read_group.h"
#include "checkpoint/tensor_store.h"
#include "spec/tensor_table.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::HasSubstr;

constexpr int kUnits = 7;  // six layers and the head

class DenseHang : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Checkpoint> opened = copy_.Open();
    ASSERT_TRUE(opened) << opened.error().message();
    checkpoint_.emplace(std::move(*opened));
    UseHangLimit(0.1);
  }
  void UseHangLimit(double seconds) {
    auto engine = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 5, .max_delay_us = 10});
    engine_ = engine.get();
    scheduler_.emplace(std::move(engine),
                       IoSchedulerOptions{.drives = {{"the drive", 0}}, .chunk_bytes = 65536, .hang_seconds = seconds});
  }
  // The result of `action`, which must not wait for drives that hang: they are let go of if it does.
  template <typename Action>
  auto WithoutWaiting(Action action) {
    auto result = std::async(std::launch::async, std::move(action));
    if (result.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "it waits for a drive that hangs";
      LetGo();
    }
    return result.get();
  }
  ResidencyPlan AllResident() const { return {std::vector<bool>(kUnits, true), true, 0}; }
  const DirectFile* FileOf(int layer) const {
    return &checkpoint_->shard(checkpoint_->Dense(checkpoint_->DenseNames(layer)[0]).shard);
  }
  // From now on reads of `file` hang; null: of no file.
  void HangReadsOf(const DirectFile* file) {
    engine_->SetFaults([file](const ReadRequest& read) {
      test::FakeFault fault;
      fault.hangs = read.file == file || file == kEvery;
      return fault;
    });
  }
  std::unique_ptr<TensorStore> Stream(int buffers) {
    ResidencyPlan plan{std::vector<bool>(kUnits, false), false, buffers};
    auto store = TensorStore::Create(*checkpoint_, *scheduler_, plan, {}, {});
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }
  void ExpectUnit(TensorStore& store, int unit) {
    const Result<UnitPin> pin = store.PinUnit(unit);
    ASSERT_TRUE(pin) << pin.error().message();
    const std::string& name = checkpoint_->DenseNames(unit)[0];
    const TensorPlace& place = checkpoint_->Dense(name);
    const TensorView view = pin->Get(std::string_view(name).substr(LayerTensorName(unit, "").size()));
    const std::string expected = test::ReadRange(checkpoint_->shard(place.shard).path(), place.offset, place.bytes);
    EXPECT_EQ(expected.compare(0, expected.size(), reinterpret_cast<const char*>(view.data), place.bytes), 0) << unit;
  }
  void LetGo() {
    engine_->SetFaults(nullptr);
    engine_->ReleaseHung();
  }

  static inline const DirectFile* const kEvery = reinterpret_cast<const DirectFile*>(1);
  MicroCopy copy_;
  std::optional<Checkpoint> checkpoint_;
  test::FakeIoEngine* engine_ = nullptr;
  std::optional<IoScheduler> scheduler_;
};

TEST_F(DenseHang, AReadGroupEndsButIsNotIdleUntilTheDriveLetsGo) {
  const auto memory = std::make_shared<const AlignedBuffer>(*AlignedBuffer::Create(65536, false));
  ReadGroup reads(memory);
  HangReadsOf(FileOf(1));
  reads.Start(*scheduler_, {FileOf(1), 0, 4096, memory->data()}, IoPriority::kDemand, 0);
  reads.Start(*scheduler_, {FileOf(2), 0, 4096, memory->data() + 16384}, IoPriority::kDemand, 0);
  const Status status = reads.Wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kDeadline);
  EXPECT_EQ(reads.bytes_done(), 4096u);
  EXPECT_FALSE(reads.idle());
  EXPECT_TRUE(reads.hangs());
  EXPECT_TRUE(reads.WaitFor(std::chrono::milliseconds(0)));
  LetGo();
  while (!reads.idle()) std::this_thread::yield();
  EXPECT_FALSE(reads.hangs());
  EXPECT_TRUE(reads.Wait());
}

TEST_F(DenseHang, AReadGroupThatIsGoneKeepsItsMemoryUntilTheDriveLetsGo) {
  auto memory = std::make_shared<const AlignedBuffer>(*AlignedBuffer::Create(65536, false));
  const std::weak_ptr<const AlignedBuffer> watched = memory;
  HangReadsOf(FileOf(1));
  WithoutWaiting([&, held = std::move(memory)]() mutable {
    ReadGroup reads(held);
    reads.Start(*scheduler_, {FileOf(1), 0, 4096, held->data()}, IoPriority::kDemand, 0);
    reads.Start(*scheduler_, {FileOf(2), 0, 4096, held->data() + 16384}, IoPriority::kDemand, 0);
    held = nullptr;
    return true;
  });
  engine_->WaitUntilSubmitted(2);
  EXPECT_FALSE(watched.expired());
  LetGo();
  while (!watched.expired()) std::this_thread::yield();
}

TEST_F(DenseHang, LoadingEndsWithAnErrorThatNamesDriveFileAndBytes) {
  HangReadsOf(FileOf(3));
  const Status status = WithoutWaiting([&]() -> Status {
    DFIN_TRY_VOID(TensorStore::Create(*checkpoint_, *scheduler_, AllResident(), {}, {}));
    return {};
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kDeadline);
  EXPECT_THAT(status.error().message(), HasSubstr("the drive"));
  EXPECT_THAT(status.error().message(), HasSubstr(FileOf(3)->path()));
  EXPECT_THAT(status.error().message(), testing::ContainsRegex("bytes [0-9]+ to [0-9]+"));
  EXPECT_GT(engine_->hung(), 0u) << "the drive has answered";
  LetGo();
}

TEST_F(DenseHang, LoadingIsCancelledBeforeTheDriveCountsAsHanging) {
  UseHangLimit(3600);
  for (const bool streams : {false, true}) {
    HangReadsOf(kEvery);
    const ResidencyPlan plan = streams ? ResidencyPlan{std::vector<bool>(kUnits, false), true, 2} : AllResident();
    CancelSource cancel;
    const Status status = WithoutWaiting([&]() -> Status {
      const auto progress = [&](uint64_t, uint64_t) { cancel.Cancel(); };
      DFIN_TRY_VOID(TensorStore::Create(*checkpoint_, *scheduler_, plan, progress, cancel.token()));
      return {};
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
    EXPECT_GT(engine_->hung(), 0u) << "the drive has answered";
    LetGo();
  }
}

TEST_F(DenseHang, TellingTheModelIsAnErrorAndIsCancelledToo) {
  HangReadsOf(kEvery);
  const auto id = WithoutWaiting([&] { return ExpertModelId(*checkpoint_, *scheduler_); });
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), ErrorCode::kDeadline) << id.error().message();
  LetGo();
  UseHangLimit(3600);
  HangReadsOf(kEvery);
  CancelSource cancel;
  cancel.Cancel();
  const auto cancelled = WithoutWaiting([&] { return ExpertModelId(*checkpoint_, *scheduler_, cancel.token()); });
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), ErrorCode::kCancelled) << cancelled.error().message();
  LetGo();
}

TEST_F(DenseHang, AStoreThatIsGoneDoesNotWaitForWhatItReadAhead) {
  HangReadsOf(FileOf(1));
  const bool gone = WithoutWaiting([&] {
    auto store = Stream(2);
    ExpectUnit(*store, 0);
    EXPECT_FALSE(store->PinUnit(1));
    store = nullptr;
    return true;
  });
  EXPECT_TRUE(gone);
  EXPECT_GT(engine_->hung(), 0u) << "the drive has answered";
  LetGo();
}

TEST_F(DenseHang, AnotherBufferStreamsOnAndTheUnitComesWhenTheDriveAnswers) {
  HangReadsOf(FileOf(3));
  const auto store = Stream(3);
  for (int unit = 0; unit < 3; ++unit) ExpectUnit(*store, unit);
  const Result<UnitPin> hung = store->PinUnit(3);
  ASSERT_FALSE(hung);
  EXPECT_EQ(hung.error().code(), ErrorCode::kDeadline);
  EXPECT_THAT(hung.error().message(), HasSubstr("layer 3"));
  for (const int unit : {4, 5, 0, 1}) ExpectUnit(*store, unit);
  LetGo();
  for (int unit = 0; unit < 6; ++unit) ExpectUnit(*store, unit);
}

TEST_F(DenseHang, WithEveryBufferHeldPinningIsAnErrorAndNotAWait) {
  HangReadsOf(kEvery);
  const auto store = Stream(2);
  for (int round = 0; round < 4; ++round) {
    const Result<UnitPin> hung = store->PinUnit(round);
    ASSERT_FALSE(hung);
    EXPECT_EQ(hung.error().code(), ErrorCode::kDeadline) << hung.error().message();
  }
  LetGo();
  // The buffers come back one by one.
  Result<UnitPin> pin = store->PinUnit(2);
  while (!pin && pin.error().code() == ErrorCode::kDeadline) pin = store->PinUnit(2);
  ASSERT_TRUE(pin) << pin.error().message();
  pin = UnitPin();
  for (int unit = 0; unit < 6; ++unit) ExpectUnit(*store, unit);
}

TEST_F(DenseHang, RowsOfTheEmbeddingAreAnErrorUntilTheDriveAnswers) {
  const auto store = Stream(2);
  const DirectFile* file = &checkpoint_->shard(checkpoint_->Dense(kEmbedTokens).shard);
  HangReadsOf(file);
  const std::vector<TokenId> ids = {1, 2, 3};
  for (int round = 0; round < 3; ++round) {
    const Result<TensorView> rows = store->EmbeddingRows(ids);
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code(), ErrorCode::kDeadline) << rows.error().message();
  }
  LetGo();
  Result<TensorView> rows = store->EmbeddingRows(ids);
  while (!rows && rows.error().code() == ErrorCode::kDeadline) rows = store->EmbeddingRows(ids);
  EXPECT_TRUE(rows);
}

}  // namespace
}  // namespace deltafin
