// ExpertStore over expert sets: the same experts as from the shards, whatever the drives do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <set>

#include "base/aligned_buffer.h"
#include "checkpoint/expert_store.h"
#include "checkpoint/micro_copy.h"
#include "support/expert_set_builder.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

using test::BuildExpertSet;
using test::ExpertSetOptions;
using test::MicroCopy;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What the shards hold for an expert, as one string: packed bytes and scales of w1, w2, w3.
std::string Content(const ExpertWeights& weights) {
  std::string all;
  for (const Mxfp4View* view : {&weights.w1, &weights.w2, &weights.w3}) {
    const auto values = static_cast<size_t>(view->rows * view->cols);
    all.append(reinterpret_cast<const char*>(view->packed), values / 2);
    all.append(reinterpret_cast<const char*>(view->scale), values / kMxfp4Group);
  }
  return all;
}

// A set of k3-micro, a checkpoint, a scheduler with a fake or real engine, and a store over the set.
class SetStoreTest : public ::testing::Test {
 protected:
  void Build(ExpertSetOptions options) {
    options.page = 512;
    if (options.rates.empty()) options.rates = {3, 2, 1};
    built_ = BuildExpertSet(copy_.folder(), test::DriveFolders(parent_.path(), static_cast<int>(options.rates.size())),
                            options);
    Result<Checkpoint> opened = copy_.Open();
    ASSERT_TRUE(opened) << opened.error().message();
    checkpoint_.emplace(std::move(*opened));
  }
  void OpenFolders(const std::vector<std::string>& folders, const ExpertStoreOptions& options = {}) {
    Result<ExpertSet> set = ExpertSet::Open(folders, checkpoint_->spec());
    ASSERT_TRUE(set) << set.error().message();
    store_.reset();
    scheduler_.reset();
    set_.emplace(std::move(*set));
    auto engine = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 5, .max_delay_us = 20});
    engine_ = engine.get();
    IoSchedulerOptions io;
    io.drives = checkpoint_->drives();
    first_drive_ = static_cast<int32_t>(io.drives.size());
    for (const DriveInfo& drive : set_->drives()) io.drives.push_back(drive);
    io.chunk_bytes = chunk_bytes_;
    io.hang_seconds = hang_seconds_;
    io.hang_seconds_with_copy = std::min(hang_seconds_, io.hang_seconds_with_copy);
    scheduler_.emplace(std::move(engine), io);
    store_.emplace(*set_, first_drive_, *scheduler_, options);
    slots_ = *AlignedBuffer::Create(40 * Stride(), false);
  }
  // The same set, read through a scheduler that soon gives up.
  void OpenWithHangs(double seconds) {
    hang_seconds_ = seconds;
    Open();
  }
  void Open(const ExpertStoreOptions& options = {}) { OpenFolders(built_.folders, options); }

  uint64_t Stride() const { return AlignUp(store_->slot_bytes(), 4096); }
  Result<ExpertWeights> Fetch(ExpertKey key) {
    std::promise<Result<ExpertWeights>> result;
    store_->Fetch(key, slots_.data(), IoPriority::kDemand, 1,
                  [&](Result<ExpertWeights> weights) { result.set_value(std::move(weights)); });
    return result.get_future().get();
  }
  // From the shard's file, past everything under test but the place of the record.
  std::string FromShards(ExpertKey key) const {
    const ExpertPlace& place = checkpoint_->Expert(key);
    const ExpertGeometry geometry(checkpoint_->spec());
    const std::string record = test::ReadRange(checkpoint_->shard(place.shard).path(), place.offset,
                                               static_cast<uint64_t>(geometry.record_bytes()));
    return Content(ViewExpert(geometry, place.layout, reinterpret_cast<const std::byte*>(record.data())));
  }
  // All of a layer at once.
  void ExpectAllExperts() {
    for (int layer = 1; layer <= 5; ++layer) {
      std::vector<std::promise<Result<ExpertWeights>>> results(40);
      for (int e = 0; e < 40; ++e)
        store_->Fetch(
            {layer, e}, slots_.data() + static_cast<uint64_t>(e) * Stride(), IoPriority::kPrefetch, 0,
            [&results, e](Result<ExpertWeights> w) { results[static_cast<size_t>(e)].set_value(std::move(w)); });
      for (int e = 0; e < 40; ++e) {
        const Result<ExpertWeights> weights = results[static_cast<size_t>(e)].get_future().get();
        EXPECT_TRUE(weights) << weights.error().message();
        EXPECT_TRUE(!weights || Content(*weights) == FromShards({layer, e})) << "layer " << layer << ", expert " << e;
      }
    }
  }
  std::string PiecePath(const ExpertPieceFile& piece) const {
    return built_.folders[static_cast<size_t>(piece.cut.drive)] + "/" + piece.file;
  }
  // Flips a bit of the record on its drive.
  void Damage(ExpertKey key, uint64_t at) {
    const ExpertSetEntry& entry = EntryOf(key);
    for (const ExpertPieceFile& piece : built_.manifest.tables[entry.table].pieces)
      if (at >= piece.cut.begin && at < piece.cut.end)
        Flip(PiecePath(piece), piece.Offset(entry.slot) + (at - piece.cut.begin));
  }
  void DamageCopy(ExpertKey key, uint64_t at) {
    const ExpertSetEntry& entry = EntryOf(key);
    for (const ExpertPieceFile& piece : built_.manifest.tables[entry.table].replica_pieces)
      if (at >= piece.cut.begin && at < piece.cut.end)
        Flip(PiecePath(piece), piece.Offset(entry.replica_slot) + (at - piece.cut.begin));
  }
  const ExpertSetEntry& EntryOf(ExpertKey key) const {
    return built_.index.entries[static_cast<size_t>((key.layer - 1) * 40 + key.expert)];
  }
  static void Flip(const std::string& path, uint64_t at) {
    std::string bytes = test::ReadBytes(path);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 16);
    test::WriteBytes(path, bytes);
  }
  // Makes the scales of some matrices fit 16 exponents and others not.
  void MixScales() {
    for (int number = 2; number <= 6; ++number) {
      const test::ForeignHeader header = test::ReadForeignHeader(copy_.shard(number));
      std::string bytes = test::ReadBytes(copy_.shard(number));
      uint64_t matrix = 0;
      for (const auto& [name, tensor] : header.tensors.items()) {
        if (name.find(".experts.") == std::string::npos || name.find("weight_scale") == std::string::npos) continue;
        const auto begin = tensor["data_offsets"][0].get<uint64_t>(), end = tensor["data_offsets"][1].get<uint64_t>();
        const uint64_t window = ++matrix % 5 == 0 ? 20 : 16;
        for (uint64_t i = begin; i < end; ++i)
          bytes[header.data_start + i] = static_cast<char>(110 + (i * 7 + matrix) % window);
      }
      test::WriteBytes(copy_.shard(number), bytes);
    }
  }

  MicroCopy copy_;
  test::TempFolder parent_;
  test::BuiltExpertSet built_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<ExpertSet> set_;
  AlignedBuffer slots_;
  test::FakeIoEngine* engine_ = nullptr;
  std::optional<IoScheduler> scheduler_;
  std::optional<ExpertStore> store_;
  int32_t first_drive_ = 0;
  uint64_t chunk_bytes_ = 0;
  double hang_seconds_ = 60;
};

TEST_F(SetStoreTest, OneToFiveDrivesGiveTheBytesOfTheShards) {
  for (const std::vector<double>& rates :
       std::vector<std::vector<double>>{{1}, {2, 1}, {3, 2, 1}, {1, 1, 1, 1, 1}, {13.6, 7.1, 7.1, 5.4}}) {
    Build({.rates = rates});
    for (const uint64_t chunk : {512, 1024, 1 << 20}) {
      chunk_bytes_ = chunk;
      Open({.verify_reads = chunk == 1024});
      EXPECT_EQ(store_->record_bytes(), 3264u);
      ExpectAllExperts();
      EXPECT_EQ(store_->counters().mismatched, 0u);
      EXPECT_EQ(store_->counters().verified, chunk == 1024 ? 200u : 0u);
    }
    std::filesystem::remove_all(parent_.path());
  }
}

TEST_F(SetStoreTest, EveryDriveIsReadInProportionAndNothingTwice) {
  Build({.rates = {4, 2, 1}});
  Open();
  ExpectAllExperts();
  const std::vector<DriveCounters> drives = scheduler_->drive_counters();
  ASSERT_EQ(drives.size(), 4u);
  EXPECT_EQ(drives[0].device_bytes, 0u) << "the shards";
  EXPECT_EQ(drives[1].device_bytes, 200u * 4 * 512);
  EXPECT_EQ(drives[2].device_bytes, 200u * 2 * 512);
  EXPECT_EQ(drives[3].device_bytes, 200u * 1 * 512);
}

TEST_F(SetStoreTest, CompactScalesGiveTheBytesOfTheShards) {
  MixScales();
  Build({.rates = {2, 1}, .compact = true, .replicas = 0.3});
  std::set<int32_t> wholes;
  for (const ExpertTable& table : built_.manifest.tables) wholes.insert(table.whole);
  EXPECT_GT(wholes.size(), 1u) << "matrices that fit and others that do not";
  for (const bool verify : {false, true}) {
    Open({.verify_reads = verify});
    ExpectAllExperts();
    EXPECT_EQ(store_->counters().mismatched, 0u);
  }
  const ExpertTable* common = &built_.manifest.tables[0];
  for (const ExpertTable& table : built_.manifest.tables)
    if (table.slots > common->slots) common = &table;
  EXPECT_EQ(store_->record_bytes(), 3264u - 32u * static_cast<uint64_t>(3 - common->whole));
}

TEST_F(SetStoreTest, AnyOneDriveMayBeAwayWhenThereAreSecondCopies) {
  Build({.rates = {3, 2, 1}, .replicas = 1});
  for (size_t missing = 0; missing < 3; ++missing) {
    std::vector<std::string> folders = built_.folders;
    folders.erase(folders.begin() + static_cast<std::ptrdiff_t>(missing));
    OpenFolders(folders, {.verify_reads = true});
    ExpectAllExperts();
    EXPECT_EQ(scheduler_->drive_counters()[1 + missing].device_bytes, 0u);
  }
}

TEST_F(SetStoreTest, ADriveThatFailsIsReadFromSecondCopies) {
  Build({.rates = {1, 1}, .replicas = 1});
  Open();
  const std::string gone = built_.folders[1];
  engine_->SetFault([gone](const ReadRequest& read) -> Status {
    if (read.file->path().rfind(gone, 0) == 0) return Fail(ErrorCode::kIo, "reading ", read.file->path(), ": EIO");
    return {};
  });
  ExpectAllExperts();
}

TEST_F(SetStoreTest, AFailedReadWithoutACopyNamesDriveFileBytesLayerAndExpert) {
  Build({.rates = {1, 1}});
  Open();
  const std::string gone = built_.folders[1];
  engine_->SetFault([gone](const ReadRequest& read) -> Status {
    if (read.file->path().rfind(gone, 0) != 0) return {};
    return Fail(ErrorCode::kIo, "reading ", read.file->path(), ", bytes ", read.offset, " to ",
                read.offset + read.bytes - 1, ": EIO");
  });
  const Result<ExpertWeights> weights = Fetch({4, 11});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kIo);
  EXPECT_THAT(weights.error().message(),
              AllOf(HasSubstr("layer 4, expert 11"), HasSubstr(gone), HasSubstr("experts-g1-t3-1.bin, bytes ")));
}

TEST_F(SetStoreTest, ABitThatFlipsOnceIsReadAgain) {
  Build({.rates = {1, 1}});
  Open({.verify_reads = true});
  const ExpertKey key{2, 5};
  Damage(key, 700);
  // Repaired behind the store's back after its first read has ended.
  std::atomic<int> reads = 0;
  engine_->SetFault([&](const ReadRequest&) -> Status {
    if (++reads == 3) Damage(key, 700);
    return {};
  });
  const Result<ExpertWeights> weights = Fetch(key);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(Content(*weights), FromShards(key));
  EXPECT_EQ(store_->counters().mismatched, 1u);
  EXPECT_EQ(store_->counters().verified, 1u);
  EXPECT_EQ(store_->counters().from_copies, 0u);
}

TEST_F(SetStoreTest, DamagedBytesComeFromTheSecondCopy) {
  Build({.rates = {3, 2, 1}, .replicas = 1});
  const ExpertKey key{3, 9};
  for (const uint64_t at : {0, 511, 512, 1800, 3263, 3583}) Damage(key, at);
  Open({.verify_reads = true});
  const Result<ExpertWeights> weights = Fetch(key);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(Content(*weights), FromShards(key));
  const ExpertStoreCounters counters = store_->counters();
  EXPECT_EQ(counters.mismatched, 2u);
  EXPECT_EQ(counters.from_copies, 1u);
  EXPECT_EQ(counters.verified, 1u);
}

TEST_F(SetStoreTest, DamageWithoutACopyIsAnErrorThatNamesTheChunk) {
  Build({.rates = {1, 1}});
  const ExpertKey key{3, 9};
  Damage(key, 1100);
  Open({.verify_reads = true});
  const Result<ExpertWeights> weights = Fetch(key);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kCorrupt);
  // The chunk [1024, 2048) of the record lies at the end of drive 0's piece of 2048 bytes.
  const uint64_t at = EntryOf(key).slot * 2048 + 1024;
  EXPECT_THAT(weights.error().message(),
              AllOf(HasSubstr("layer 3, expert 9"), HasSubstr(built_.folders[0] + "/experts-g1-t3-0.bin"),
                    HasSubstr(Cat("bytes ", at, " to ", at + 1023)), HasSubstr("verify --repair")));
  EXPECT_EQ(store_->counters().mismatched, 2u);
  EXPECT_TRUE(Fetch({3, 10})) << "others are not affected";
}

TEST_F(SetStoreTest, ADamagedSecondCopyDoesNoHarm) {
  Build({.rates = {3, 2, 1}, .replicas = 1});
  for (int expert = 0; expert < 40; ++expert)
    for (const uint64_t at : {0, 600, 1800, 2300, 3500}) DamageCopy({3, expert}, at);
  Open({.verify_reads = true});
  std::vector<std::promise<Result<ExpertWeights>>> results(40);
  for (int e = 0; e < 40; ++e)
    store_->Fetch({3, e}, slots_.data() + static_cast<uint64_t>(e) * Stride(), IoPriority::kDemand, 0,
                  [&results, e](Result<ExpertWeights> w) { results[static_cast<size_t>(e)].set_value(std::move(w)); });
  for (int e = 0; e < 40; ++e) {
    const Result<ExpertWeights> weights = results[static_cast<size_t>(e)].get_future().get();
    ASSERT_TRUE(weights) << weights.error().message();
    EXPECT_EQ(Content(*weights), FromShards({3, e}));
  }
}

TEST_F(SetStoreTest, DamageOfBothCopiesIsAnError) {
  Build({.rates = {1, 1}, .replicas = 1});
  const ExpertKey key{3, 9};
  Damage(key, 100);
  DamageCopy(key, 100);
  Open({.verify_reads = true});
  const Result<ExpertWeights> weights = Fetch(key);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(store_->counters().mismatched, 5u);
}

TEST_F(SetStoreTest, DamageIsNotNoticedWithoutVerification) {
  Build({.rates = {1, 1}});
  Damage({3, 9}, 100);
  Open();
  const Result<ExpertWeights> weights = Fetch({3, 9});
  ASSERT_TRUE(weights);
  EXPECT_NE(Content(*weights), FromShards({3, 9}));
}

TEST_F(SetStoreTest, WithoutChecksumsOfChunksTheWholeRecordComesFromTheCopies) {
  Build({.rates = {1, 1}, .replicas = 1});
  const ExpertKey key{3, 9};
  Damage(key, 100);
  Open({.verify_reads = true});
  for (const std::string& folder : built_.folders) std::filesystem::remove(folder + "/" + built_.manifest.index_file);
  const Result<ExpertWeights> weights = Fetch(key);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(Content(*weights), FromShards(key));
}

// Scales begin at 3072 of a record of k3-micro whose scales are whole.
void SetByte(const std::string& path, uint64_t at, unsigned char value) {
  std::string bytes = test::ReadBytes(path);
  bytes.at(at) = static_cast<char>(value);
  test::WriteBytes(path, bytes);
}

TEST_F(SetStoreTest, AScaleOf255IsReadAgainThenFromTheCopyThenAnError) {
  for (const double replicas : {1.0, 0.0}) {
    Build({.rates = {1, 1}, .replicas = replicas});
    const ExpertKey key{2, 21};
    const ExpertPieceFile& piece = built_.manifest.tables[0].pieces[1];
    const uint64_t at = piece.Offset(EntryOf(key).slot) + (3072 + 64 + 3 - piece.cut.begin);
    SetByte(PiecePath(piece), at, 255);
    Open();
    const Result<ExpertWeights> weights = Fetch(key);
    EXPECT_EQ(store_->counters().mismatched, 2u);
    if (replicas == 1) {
      ASSERT_TRUE(weights) << weights.error().message();
      EXPECT_EQ(Content(*weights), FromShards(key));
      EXPECT_EQ(store_->counters().from_copies, 1u);
    } else {
      ASSERT_FALSE(weights);
      EXPECT_EQ(weights.error().code(), ErrorCode::kCorrupt);
      EXPECT_THAT(weights.error().message(),
                  AllOf(HasSubstr("layer 2, expert 21, w2.weight_scale, row "), HasSubstr(PiecePath(piece)),
                        HasSubstr(Cat("byte ", at)), HasSubstr("got 255")));
    }
  }
}

TEST_F(SetStoreTest, AHungReadFreesItsSlotOnlyWhenTheDriveAnswers) {
  Build({.rates = {1, 1}});
  OpenWithHangs(0.05);
  const std::string hung = PiecePath(built_.manifest.tables[0].pieces[1]);
  engine_->SetFaults([hung](const ReadRequest& read) {
    test::FakeFault fault;
    fault.hangs = read.file->path() == hung;
    return fault;
  });
  std::vector<Result<ExpertWeights>> calls;
  std::mutex mutex;
  std::condition_variable called;
  store_->Fetch({2, 7}, slots_.data(), IoPriority::kDemand, 0, [&](Result<ExpertWeights> result) {
    const std::lock_guard lock(mutex);
    calls.push_back(std::move(result));
    called.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    called.wait(lock, [&] { return !calls.empty(); });
    ASSERT_FALSE(calls[0]);
    EXPECT_EQ(calls[0].error().code(), ErrorCode::kDeadline);
    EXPECT_THAT(calls[0].error().message(), HasSubstr("layer 2, expert 7"));
  }
  engine_->SetFaults(nullptr);
  EXPECT_EQ(engine_->hung(), 1u);
  engine_->ReleaseHung();
  std::unique_lock lock(mutex);
  called.wait(lock, [&] { return calls.size() == 2; });
  ASSERT_FALSE(calls[1]);
  EXPECT_EQ(calls[1].error().code(), ErrorCode::kCancelled);
}

TEST_F(SetStoreTest, AHungReadWithACopyIsReadFromItIntoAnotherSlot) {
  Build({.rates = {1, 1}, .replicas = 1});
  OpenWithHangs(0.05);
  const std::string hung = built_.folders[1];
  engine_->SetFaults([hung](const ReadRequest& read) {
    test::FakeFault fault;
    fault.hangs = read.file->path().rfind(hung, 0) == 0;
    return fault;
  });
  std::atomic<int> calls = 0;
  std::promise<void> ended;
  store_->Fetch({2, 7}, slots_.data(), IoPriority::kDemand, 0, [&](Result<ExpertWeights>) {
    if (calls++ == 0) ended.set_value();
  });
  ended.get_future().wait();
  ASSERT_TRUE(store_->HasCopy({2, 7}));
  // The drive is known to hang by now.
  std::promise<Result<ExpertWeights>> again;
  store_->Fetch({2, 7}, slots_.data() + Stride(), IoPriority::kDemand, 0,
                [&](Result<ExpertWeights> weights) { again.set_value(std::move(weights)); });
  const Result<ExpertWeights> weights = again.get_future().get();
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(Content(*weights), FromShards({2, 7}));
  engine_->SetFaults(nullptr);
  engine_->ReleaseHung();
  store_.reset();
}

}  // namespace
}  // namespace deltafin
