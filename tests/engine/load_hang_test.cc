// A drive that hangs while an engine is being opened: opening ends, with an error that names the place or because it
// was cancelled, and nobody waits for the drive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "backend/cpu/cpu_backend.h"
#include "support/engine_runs.h"
#include "support/expert_set_builder.h"
#include "support/fake_io_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

// Opens an engine whose reads all hang.
struct Opening {
  EngineOptions options{.model = test::MicroFolder(), .threads = 1};
  double hang_seconds = 0.2;
  CancelSource cancel;
  EngineMonitor monitor;
  Logger logger{[](const std::string&) {}};
  test::FakeIoEngine* io = nullptr;
  std::promise<void> first_read;
  bool seen = false;

  ~Opening() {
    if (io != nullptr) io->ReleaseHung();
  }

  Result<std::unique_ptr<IoEngine>> MakeIo() {
    auto fake = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{});
    fake->SetFaults([this](const ReadRequest&) {
      if (!std::exchange(seen, true)) first_read.set_value();
      test::FakeFault fault;
      fault.hangs = true;
      return fault;
    });
    io = fake.get();
    return fake;
  }

  Status Open() {
    static const std::vector<BackendFactory> backends = {{"cpu", CreateCpuBackend}};
    DFIN_TRY_VOID(
        Engine::Create(options, {.backends = backends,
                                 .monitor = monitor,
                                 .logger = logger,
                                 .cancel = cancel.token(),
                                 .on_plan = {},
                                 .io_engine = [this] { return MakeIo(); },
                                 .tune_io = [this](IoSchedulerOptions& o) { o.hang_seconds = hang_seconds; }}));
    return {};
  }

  // What Open() came to; the drive is let go of if it waits.
  Status Run(const std::function<void()>& meanwhile = {}) {
    std::future<Status> opened = std::async(std::launch::async, [this] { return Open(); });
    if (meanwhile) meanwhile();
    if (opened.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "opening waits for a drive that hangs";
      io->ReleaseHung();
      io = nullptr;  // it dies with the engine
    }
    return opened.get();
  }
  // Reads that the drive has not answered.
  size_t hung() const { return io == nullptr ? 0 : io->hung(); }
};

TEST(LoadHang, OfDenseWeightsIsAnErrorThatNamesDriveFileAndBytes) {
  Opening opening;
  const Status status = opening.Run();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kDeadline) << status.error().message();
  EXPECT_THAT(status.error().message(), HasSubstr("drive " + test::MicroFolder()));
  EXPECT_THAT(status.error().message(), HasSubstr(".safetensors"));
  EXPECT_THAT(status.error().message(), testing::ContainsRegex("bytes [0-9]+ to [0-9]+"));
  EXPECT_GT(opening.hung(), 0u) << "the drive has answered";
}

TEST(LoadHang, WhileTheExpertSetIsComparedWithTheModelIsAnErrorToo) {
  const test::TempFolder folder;
  Opening opening;
  opening.options.experts = test::DriveFolders(folder.path(), 2);
  test::BuildExpertSet(test::MicroFolder(), opening.options.experts);
  const Status status = opening.Run();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kDeadline) << status.error().message();
  EXPECT_THAT(status.error().message(), HasSubstr("router biases"));
  EXPECT_GT(opening.hung(), 0u) << "the drive has answered";
}

TEST(LoadHang, EndsWhenItIsCancelledOnce) {
  Opening opening;
  opening.hang_seconds = 3600;
  const Status status = opening.Run([&] {
    opening.first_read.get_future().wait();
    opening.cancel.Cancel();
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled) << status.error().message();
  EXPECT_GT(opening.hung(), 0u) << "the drive has answered";
}

}  // namespace
}  // namespace deltafin
