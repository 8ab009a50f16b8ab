#include "cache/expert_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ExpertTraceShape kShape{.layers = 4, .experts = 8, .experts_per_token = 2, .record_bytes = 1000};
const std::string kHeader = "deltafin-expert-trace 1 layers 4 experts 8 per-token 2 record-bytes 1000\n";

std::vector<int32_t> Experts(const ExpertTrace& trace, size_t batch) {
  const std::span<const int32_t> experts = trace.ExpertsOf(trace.batches()[batch]);
  return {experts.begin(), experts.end()};
}

TEST(ExpertTrace, WhatIsWrittenIsReadBack) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/trace";
  {
    Result<ExpertTraceWriter> writer = ExpertTraceWriter::Create(path, kShape);
    ASSERT_TRUE(writer) << writer.error().message();
    writer->Add(1, std::vector<int32_t>{0, 3, 7}, std::vector<int32_t>{1, 5, 4});
    writer->Add(3, std::vector<int32_t>{2});
    ASSERT_TRUE(writer->EndStep(5));
    writer->Add(1, std::vector<int32_t>{4});
    writer->DropStep();  // given up
    writer->Add(1, std::vector<int32_t>{6, 7});
    ASSERT_TRUE(writer->EndStep(1));
    writer->Add(1, std::vector<int32_t>{1});  // not finished
  }
  EXPECT_EQ(*ReadWholeFile(path, 4096), kHeader + "1 0 3*5 7*4\n3 2\nstep 5\n1 6 7\nstep 1\n");
  const Result<ExpertTrace> trace = ExpertTrace::Load(path);
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->shape(), kShape);
  ASSERT_EQ(trace->steps().size(), 2u);
  EXPECT_EQ(trace->steps()[0].rows, 5);
  EXPECT_EQ(trace->steps()[0].end, 2u);
  EXPECT_EQ(trace->steps()[1].end, 3u);
  EXPECT_THAT(Experts(*trace, 0), ElementsAre(0, 3, 7));
  EXPECT_THAT(Experts(*trace, 1), ElementsAre(2));
  EXPECT_THAT(trace->RowsOf(trace->batches()[0]), ElementsAre(1, 5, 4));
  EXPECT_THAT(trace->RowsOf(trace->batches()[2]), ElementsAre(1, 1));
  EXPECT_THAT(Experts(*trace, 2), ElementsAre(6, 7));
  EXPECT_EQ(trace->batches()[1].layer, 3);
  EXPECT_EQ(trace->uses(), 6u);
  EXPECT_FALSE(trace->was_cut());
}

TEST(ExpertTrace, AStepThatIsCutShortIsLeftOut) {
  const std::string whole = "1 0 3\nstep 1\n";
  const std::string second = "1 2\n2 5 6\nstep 1\n";
  for (size_t kept = 1; kept < second.size(); ++kept) {
    const Result<ExpertTrace> trace = ExpertTrace::Parse(kHeader + whole + second.substr(0, kept), "t");
    ASSERT_TRUE(trace) << kept << ": " << trace.error().message();
    EXPECT_EQ(trace->steps().size(), 1u) << kept;
    EXPECT_EQ(trace->batches().size(), 1u) << kept;
    EXPECT_EQ(trace->uses(), 2u) << kept;
    EXPECT_TRUE(trace->was_cut()) << kept;
  }
}

TEST(ExpertTrace, DamageIsRefusedWithItsLine) {
  const auto refused = [](const std::string& text) {
    const Result<ExpertTrace> trace = ExpertTrace::Parse(text, "name.trace");
    if (trace) return std::string("accepted");
    EXPECT_EQ(trace.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(trace.error().message(), HasSubstr("name.trace"));
    return trace.error().message();
  };
  EXPECT_THAT(refused(""), HasSubstr("first line"));
  EXPECT_THAT(refused("deltafin-expert-trace 2 layers 4\n"), HasSubstr("first line"));
  for (const char* rest :
       {"layers 0 experts 8 per-token 2 record-bytes 1", "layers 4 experts 8 per-token 9 record-bytes 1",
        "layers 4 experts 8 per-token 0 record-bytes 1", "layers 4 experts 8 per-token 2 record-bytes 0",
        "layers 4 experts 16385 per-token 2 record-bytes 1", "layers 4 experts -8 per-token 2 record-bytes 1",
        "layers 1025 experts 8 per-token 2 record-bytes 1", "layers 4 experts 8 per-token 2 record-bytes 1 "})
    EXPECT_THAT(refused(std::string("deltafin-expert-trace 1 ") + rest + "\n"), HasSubstr("line 1")) << rest;
  for (const char* line : {"4 1", "1", "1 ", "1 8", "1 3 3", "1 3 2", "1  3", "1 3 ", "-1 3", "x", "step 1", "step", "",
                           "1 99999999999999999999", "1 3\r", "1 3*", "1 3*0", "1 3*16777217", "1 3*2*2"})
    EXPECT_THAT(refused(kHeader + line + "\n"), HasSubstr("line 2")) << line;
  EXPECT_THAT(refused(kHeader + "1 3\n1 4\n"), HasSubstr("line 3"));  // layers of a step ascend
  EXPECT_THAT(refused(kHeader + "1 3\nstep 0\n"), HasSubstr("line 3"));
  EXPECT_THAT(refused(kHeader + "1 3\nstep 16777217\n"), HasSubstr("line 3"));
  EXPECT_THAT(refused(kHeader + "1 3\nstep 1 \n"), HasSubstr("line 3"));
}

TEST(ExpertTraceWriter, ReplacesAnOlderTraceAndNothingElse) {
  const test::TempFolder folder;
  const std::string older = folder.path() + "/older", other = folder.path() + "/other";
  std::ofstream(older) << kHeader << "1 0\nstep 1\n";
  std::ofstream(other) << "weights";
  ASSERT_TRUE(ExpertTraceWriter::Create(older, kShape));
  EXPECT_EQ(*ReadWholeFile(older, 4096), kHeader);
  const Result<ExpertTraceWriter> refused = ExpertTraceWriter::Create(other, kShape);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr(other));
  EXPECT_EQ(*ReadWholeFile(other, 4096), "weights");
  const Result<ExpertTraceWriter> no_folder = ExpertTraceWriter::Create(folder.path() + "/none/t", kShape);
  ASSERT_FALSE(no_folder);
  EXPECT_EQ(no_folder.error().code(), ErrorCode::kIo);
}

TEST(ExpertTraceWriter, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Result<ExpertTraceWriter> writer = ExpertTraceWriter::Create("/dev/full", kShape);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace deltafin
