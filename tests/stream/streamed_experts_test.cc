// Experts between cache and disk: what is absent is fetched once, put in its place and read from there; cancelling ends
// at once; nobody's guess makes anything be fetched.
#include "checkpoint/streamed_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/aligned_buffer.h"
#include "checkpoint/expert_store.h"
#include "io/io_engine.h"
#include "setup/stream_fill.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

// The files of a folder, as if they were far away. While held nothing arrives.
class FarFolder final : public RemoteFiles {
 public:
  struct Control {
    std::mutex mutex;
    std::condition_variable changed;
    bool held = false;
    int reads = 0, waiting = 0;
    uint64_t largest = 0;
    Status failure;
    void Hold(bool hold) {
      const std::lock_guard lock(mutex);
      held = hold;
      changed.notify_all();
    }
    void AwaitWaiting(int count) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return waiting >= count; });
    }
  };
  FarFolder(std::string folder, Control& control) : folder_(std::move(folder)), control_(control) {}

  Status Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) override {
    {
      std::unique_lock lock(control_.mutex);
      ++control_.reads;
      control_.largest = std::max<uint64_t>(control_.largest, out.size());
      ++control_.waiting;
      control_.changed.notify_all();
      while (control_.held && !cancel.cancelled()) control_.changed.wait_for(lock, std::chrono::milliseconds(5));
      --control_.waiting;
      if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "stopped");
      if (!control_.failure) return control_.failure;
    }
    std::ifstream in(folder_ + "/" + file.name, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    return in.good() ? Status() : Status(Fail(ErrorCode::kIo, file.name, ": not read"));
  }

 private:
  const std::string folder_;
  Control& control_;
};

class Experts : public testing::Test {
 protected:
  static std::string Model() { return test::RepoPath("models/k3-nano"); }

  void SetUp() override {
    StreamManifest manifest;
    manifest.endpoint = "https://hub.example";
    manifest.repository = "owner/name";
    manifest.revision = "main";
    manifest.commit = std::string(40, 'c');
    for (const auto& entry : std::filesystem::directory_iterator(Model())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".safetensors"))
        manifest.files.push_back({name, entry.file_size(), std::string(64, '0'), ""});
      else
        std::filesystem::copy(entry.path(), folder_.path() + "/" + name);
    }
    ASSERT_TRUE(StreamFolder::Create(folder_.path(), manifest));
    auto opened = StreamFolder::Open(folder_.path(), StreamFolder::Use::kFetch);
    ASSERT_TRUE(opened) << opened.error().message();
    stream_ = std::move(*opened);
    FarFolder far(Model(), control_);
    const Status filled = FillDense(*stream_, far, {});
    ASSERT_TRUE(filled) << filled.error().message();
    control_.reads = 0;
    control_.largest = 0;
    auto checkpoint = Checkpoint::Open({.folder = folder_.path(), .index_cache_folder = "", .may_be_streamed = true});
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
    IoSchedulerOptions options;
    options.drives = checkpoint_->drives();
    io_ = std::make_unique<IoScheduler>(std::move(CreateIoEngine({.kind = "pread"}).value()), std::move(options));
    store_ = std::make_unique<ExpertStore>(LocateInStream(*checkpoint_, *stream_), *io_,
                                           ExpertStoreOptions{.verify_reads = true});
    slots_ = std::move(AlignedBuffer::Create(kSlots * SlotBytes()).value());
    first_layer_ = static_cast<int32_t>(checkpoint_->spec().layers.size()) -
                   static_cast<int32_t>(checkpoint_->spec().num_moe_layers);
  }

  static constexpr uint64_t kSlots = 32;
  uint64_t SlotBytes() const { return AlignUp(store_->slot_bytes(), 4096); }

  std::unique_ptr<StreamedExperts> Make(bool offline = false, StreamedExpertsOptions options = {}) {
    return std::make_unique<StreamedExperts>(*checkpoint_, *stream_, *store_,
                                             offline ? nullptr : std::make_unique<FarFolder>(Model(), control_),
                                             options, clock_);
  }

  std::future<Result<ExpertWeights>> Fetch(ExpertSource& source, ExpertKey key, uint64_t slot = 0, IoTag tag = 0,
                                           IoPriority priority = IoPriority::kDemand) {
    const auto promise = std::make_shared<std::promise<Result<ExpertWeights>>>();
    std::future<Result<ExpertWeights>> future = promise->get_future();
    source.Fetch(key, slots_.data() + slot * SlotBytes(), priority, tag == 0 ? source.NewTag() : tag,
                 [promise](Result<ExpertWeights> result) { promise->set_value(std::move(result)); });
    return future;
  }

  // Against the model itself, read past everything under test.
  bool IsRight(ExpertKey key, const ExpertWeights& weights) const {
    const ExpertPlace& place = checkpoint_->Expert(key);
    const std::string& path = checkpoint_->shard(place.shard).path();
    std::ifstream in(Model() + path.substr(path.rfind('/')), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(place.offset + place.layout.packed_offset[0]));
    const auto bytes = static_cast<size_t>(ExpertGeometry(checkpoint_->spec()).packed_bytes(ExpertMatrix::kW1));
    std::string expected(bytes, '\0');
    in.read(expected.data(), static_cast<std::streamsize>(bytes));
    return std::memcmp(expected.data(), weights.w1.packed, bytes) == 0;
  }

  // Checkpoints sort experts as text: 0, 1, 10, 11, ... Numbers that follow each other need not be neighbours.
  std::vector<ExpertKey> FirstInFileOrder(size_t count) const {
    std::vector<ExpertKey> keys;
    for (int32_t expert = 0; expert < checkpoint_->spec().num_experts; ++expert) keys.push_back({first_layer_, expert});
    std::sort(keys.begin(), keys.end(), [&](ExpertKey a, ExpertKey b) {
      return checkpoint_->Expert(a).offset < checkpoint_->Expert(b).offset;
    });
    keys.resize(count);
    return keys;
  }

  const test::TempFolder folder_;
  FarFolder::Control control_;
  const SteadyClock clock_;
  std::unique_ptr<StreamFolder> stream_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<IoScheduler> io_;
  std::unique_ptr<ExpertStore> store_;
  AlignedBuffer slots_;
  int32_t first_layer_ = 0;
};

TEST_F(Experts, OneThatIsAbsentIsFetchedOnceAndReadFromDiskAfterwards) {
  const auto experts = Make();
  const ExpertKey key{first_layer_, 5};
  EXPECT_FALSE(experts->IsThere(key));
  for (int i = 0; i < 3; ++i) {
    const Result<ExpertWeights> got = Fetch(*experts, key).get();
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(IsRight(key, *got));
  }
  EXPECT_EQ(control_.reads, 1);
  EXPECT_TRUE(experts->IsThere(key));
  EXPECT_EQ(experts->counters().experts, 1u);
  EXPECT_EQ(experts->counters().bytes, experts->record_bytes());
  EXPECT_EQ(experts->counters().waiting, 0u);
}

TEST_F(Experts, AdjacentOnesThatWaitAreFetchedAsOneRange) {
  const auto experts = Make(false, {.connections = 1});
  const std::vector<ExpertKey> adjacent = FirstInFileOrder(9);
  control_.Hold(true);
  std::vector<std::future<Result<ExpertWeights>>> waiting;
  for (size_t i = 0; i < adjacent.size(); ++i) {
    waiting.push_back(Fetch(*experts, adjacent[i], i));
    if (i == 0) control_.AwaitWaiting(1);  // the only connection is taken before the others come
  }
  control_.Hold(false);
  for (size_t i = 0; i < adjacent.size(); ++i) {
    const Result<ExpertWeights> got = waiting[i].get();
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(IsRight(adjacent[i], *got)) << adjacent[i].expert;
  }
  EXPECT_EQ(control_.reads, 3) << "the first alone, then twice four, which is the most that are joined";
  EXPECT_EQ(control_.largest, 4 * experts->record_bytes());
}

TEST_F(Experts, GuessesAndWarmStartsFetchNothing) {
  const auto experts = Make();
  for (const IoPriority priority : {IoPriority::kGuess, IoPriority::kBackground}) {
    const auto got = Fetch(*experts, {first_layer_, 1}, 0, 0, priority).get();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), ErrorCode::kUnavailable);
  }
  EXPECT_EQ(control_.reads, 0);
}

TEST_F(Experts, CancellingEndsAtOnceAndWhatWasOnItsWayIsKept) {
  const auto experts = Make(false, {.connections = 1});
  control_.Hold(true);
  const IoTag tag = experts->NewTag();
  auto running = Fetch(*experts, {first_layer_, 1}, 0, tag);
  control_.AwaitWaiting(1);
  auto queued = Fetch(*experts, {first_layer_, 40}, 1, tag);
  experts->Cancel(tag);
  for (auto* future : {&running, &queued}) {
    ASSERT_EQ(future->wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(future->get().error().code(), ErrorCode::kCancelled);
  }
  control_.Hold(false);
  const Result<ExpertWeights> again = Fetch(*experts, {first_layer_, 1}).get();
  ASSERT_TRUE(again);
  EXPECT_TRUE(IsRight({first_layer_, 1}, *again));
  EXPECT_EQ(control_.reads, 1) << "the second fetch joins the first";
  EXPECT_FALSE(experts->IsThere({first_layer_, 40}));
}

TEST_F(Experts, ItsEndDoesNotWaitForTheNetwork) {
  auto experts = Make();
  control_.Hold(true);
  auto waiting = Fetch(*experts, {first_layer_, 1});
  control_.AwaitWaiting(1);
  experts.reset();
  EXPECT_EQ(waiting.get().error().code(), ErrorCode::kCancelled);
}

TEST_F(Experts, DamageOnDiskIsFetchedAgain) {
  const auto experts = Make();
  const ExpertKey key{first_layer_, 3};
  ASSERT_TRUE(Fetch(*experts, key).get());
  const ExpertPlace& place = checkpoint_->Expert(key);
  {
    std::fstream file(checkpoint_->shard(place.shard).path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(place.offset + 100));
    file.write("damage", 6);
  }
  const Result<ExpertWeights> got = Fetch(*experts, key).get();
  ASSERT_TRUE(got) << got.error().message();
  EXPECT_TRUE(IsRight(key, *got));
  EXPECT_EQ(experts->counters().fetched_again, 1u);
}

TEST_F(Experts, WithoutANetworkAnAbsentOneIsAnErrorThatNamesIt) {
  const auto experts = Make(/*offline=*/true);
  const auto got = Fetch(*experts, {first_layer_, 7}).get();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), ErrorCode::kIo);
  EXPECT_THAT(got.error().message(), HasSubstr(Cat("layer ", first_layer_, ", expert 7")));
  EXPECT_THAT(got.error().message(), HasSubstr(folder_.path() + "/partial/model-"));
}

TEST_F(Experts, AFetchThatFailsLeavesTheOthersAndTheNextOneSucceeds) {
  const auto experts = Make();
  control_.failure = Fail(ErrorCode::kIo, "the line is cut");
  const auto failed = Fetch(*experts, {first_layer_, 7}).get();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message(), HasSubstr("expert 7: the line is cut"));
  control_.failure = {};
  EXPECT_TRUE(Fetch(*experts, {first_layer_, 7}).get());
}

}  // namespace
}  // namespace deltafin
