#include "checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/test_data.h"
#include "synth/raw_safetensors.h"

namespace deltafin {
namespace {

using test::RawSafetensors;
using ::testing::HasSubstr;

Bytes AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(SafetensorsWriter, WritesHeaderAndDataInTheDeclaredOrder) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/a.safetensors";
  const TensorDeclaration tensors[] = {{"b", DType::kU8, {3}}, {"a", DType::kBF16, {2, 2}}, {"c", DType::kI64, {0}}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, tensors);
  ASSERT_TRUE(writer) << writer.error().message();
  ASSERT_TRUE(writer->Append(AsBytes("xy")));
  ASSERT_TRUE(writer->Append(AsBytes("z01234567")));
  ASSERT_TRUE(writer->Finish());

  const RawSafetensors raw = RawSafetensors::Read(path);
  EXPECT_EQ(raw.header_bytes % 8, 0u);
  EXPECT_EQ(raw.header.dump(), R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                               R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[3,11]},)"
                               R"("c":{"dtype":"I64","shape":[0],"data_offsets":[11,11]}})");
  EXPECT_EQ(raw.data, "xyz01234567");
}

TEST(SafetensorsWriter, ShowsTheFileOnlyWhenFinished) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/a.safetensors";
  const TensorDeclaration tensors[] = {{"a", DType::kU8, {3}}};
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, tensors);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->Append(AsBytes("ab")));
    EXPECT_FALSE(std::filesystem::exists(path));
    const Status finished = writer->Finish();
    ASSERT_FALSE(finished);
    EXPECT_THAT(finished.error().message(), HasSubstr("1 declared bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "an abandoned file must leave nothing behind";
}

TEST(SafetensorsWriter, RefusesMoreBytesThanDeclared) {
  const test::TempFolder folder;
  const TensorDeclaration tensors[] = {{"a", DType::kU8, {3}}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(folder.path() + "/a", tensors);
  ASSERT_TRUE(writer);
  const Status appended = writer->Append(AsBytes("abcd"));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), ErrorCode::kInvalidArgument);
}

struct BadDeclaration {
  std::string label;
  std::vector<TensorDeclaration> tensors;
  std::string message;
};

class BadDeclarations : public ::testing::TestWithParam<BadDeclaration> {};

TEST_P(BadDeclarations, AreRefused) {
  const test::TempFolder folder;
  const Result<SafetensorsWriter> writer = SafetensorsWriter::Create(folder.path() + "/a", GetParam().tensors);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(writer.error().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    SafetensorsWriter, BadDeclarations,
    ::testing::Values(BadDeclaration{"Twice", {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, "twice"},
                      BadDeclaration{"Quote", {{"a\"b", DType::kU8, {1}}}, "quotes"},
                      BadDeclaration{"Empty", {{"", DType::kU8, {1}}}, "plain name"},
                      BadDeclaration{"Negative", {{"a", DType::kU8, {-1}}}, "not possible"},
                      BadDeclaration{
                          "TooLarge", {{"a", DType::kI64, {int64_t{1} << 40, int64_t{1} << 40}}}, "not possible"}),
    [](const auto& test) { return test.param.label; });

TEST(WriteSafetensors, WritesTensorsOfMemory) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/logits.safetensors";
  const float logits[] = {1.5f, -2.0f};
  const int64_t ids[] = {7, 8, 9};
  const NamedTensor tensors[] = {{{"logits", DType::kF32, {1, 2}}, std::as_bytes(std::span(logits))},
                                 {{"ids", DType::kI64, {3}}, std::as_bytes(std::span(ids))}};
  ASSERT_TRUE(WriteSafetensors(path, tensors));
  const RawSafetensors raw = RawSafetensors::Read(path);
  EXPECT_EQ(raw.Floats("logits"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(LoadUnaligned<int64_t>(raw.Bytes("ids").data() + 16), 9);
}

TEST(WriteSafetensors, RefusesATensorWhoseBytesDoNotFitItsShape) {
  const test::TempFolder folder;
  const float value = 1;
  const NamedTensor tensors[] = {{{"a", DType::kF32, {2}}, std::as_bytes(std::span(&value, 1))}};
  const Status written = WriteSafetensors(folder.path() + "/a", tensors);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("expected 8 bytes for shape [2], got 4"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AtomicFile, ReportsAFolderThatDoesNotExist) {
  const Result<AtomicFile> file = AtomicFile::Create("/nonexistent-folder/a");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kIo);
  EXPECT_THAT(file.error().message(), HasSubstr("/nonexistent-folder/a"));
}

}  // namespace
}  // namespace deltafin
