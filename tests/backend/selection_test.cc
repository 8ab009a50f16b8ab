// Choosing a backend and an instruction set by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend_fixture.h"

namespace deltafin::test {
namespace {

TEST(BackendSelection, AutoPicksTheBestInstructionSet) {
  const Result<std::unique_ptr<Backend>> backend = CreateCpuBackend({"auto", "auto", 1});
  ASSERT_TRUE(backend) << backend.error().message();
  EXPECT_EQ((*backend)->name(), "cpu/" + (Isas().back()));
}

TEST(BackendSelection, TheNameSaysTheInstructionSet) {
  for (const std::string& isa : Isas()) EXPECT_EQ(MakeCpu(isa)->name(), "cpu/" + isa);
}

TEST(BackendSelection, AnInstructionSetOfAnotherProcessorIsUnavailable) {
  const char* foreign = Isas().front() == "neon" ? "avx2" : "neon";
  const Result<std::unique_ptr<Backend>> backend = CreateCpuBackend({"cpu", foreign, 1});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(backend.error().message(), testing::HasSubstr(foreign));
}

TEST(BackendSelection, AnUnknownInstructionSetIsRefusedWithTheKnownNames) {
  const Result<std::unique_ptr<Backend>> backend = CreateCpuBackend({"cpu", "sse9", 1});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(backend.error().message(), testing::HasSubstr("auto, avx2, avx512, avx512_vnni, neon"));
}

TEST(BackendSelection, TheReferenceRefusesAnInstructionSet) {
  const Result<std::unique_ptr<Backend>> backend = CreateReferenceBackend({"reference", "avx2", 1});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code(), ErrorCode::kInvalidArgument);
}

TEST(BackendSelection, FewerThanOneThreadIsRefused) {
  EXPECT_FALSE(CreateCpuBackend({"cpu", "auto", 0}));
  EXPECT_FALSE(CreateReferenceBackend({"reference", "auto", -1}));
}

TEST(BackendSelection, TheFirstRowOfTheTableIsAuto) {
  const std::vector<BackendFactory> table = {{"cpu", CreateCpuBackend}, {"reference", CreateReferenceBackend}};
  const auto name = [&](const char* device) {
    const Result<std::unique_ptr<Backend>> backend = CreateBackend(table, {device, "auto", 1});
    return backend ? (*backend)->name() : backend.error().message();
  };
  EXPECT_THAT(name("auto"), testing::StartsWith("cpu/"));
  EXPECT_EQ(name("reference"), "reference");
  EXPECT_EQ(name("gpu"), "--device gpu: expected one of auto, cpu, reference");
}

TEST(BackendWorkspace, ReserveTakesWhatWorkspaceBytesSays) {
  const auto backend = MakeCpu(Isas().front(), 2);
  WorkspaceLimits small = TestLimits(), large = TestLimits();
  small.max_inner = 512, small.max_expert_inner = 512;
  EXPECT_GT(backend->WorkspaceBytes(small), 0u);
  EXPECT_LT(backend->WorkspaceBytes(small), backend->WorkspaceBytes(large));
  // Rows beyond one pass over the weights cost no memory.
  large.max_rows = 100000;
  EXPECT_EQ(backend->WorkspaceBytes(large), backend->WorkspaceBytes(TestLimits()));
}

}  // namespace
}  // namespace deltafin::test
