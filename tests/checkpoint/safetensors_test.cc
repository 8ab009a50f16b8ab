#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltafin {
namespace {

using ::testing::HasSubstr;

std::string Message(std::string_view json) {
  const Result<SafetensorsHeader> header = SafetensorsHeader::Parse(json, "a.safetensors");
  return header ? "accepted" : header.error().message();
}

TEST(SafetensorsHeader, GivesTensorsInTheOrderOfTheirData) {
  const auto header = SafetensorsHeader::Parse(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
          "a": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]},
          "s": {"dtype": "U8", "shape": [], "data_offsets": [28, 29]}}  )",
      "x");
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->tensors().size(), 3u);
  EXPECT_EQ(header->tensors()[0].name, "a");
  EXPECT_EQ(header->tensors()[1].name, "b");
  EXPECT_EQ(header->tensors()[1].dtype, DType::kF32);
  EXPECT_EQ(header->tensors()[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header->tensors()[1].begin, 4u);
  EXPECT_EQ(header->tensors()[1].bytes, 24u);
  EXPECT_EQ(header->tensors()[2].shape.rank(), 0);
  EXPECT_EQ(header->data_bytes(), 29u);
}

TEST(SafetensorsHeader, NamesSurviveAMove) {
  auto header = SafetensorsHeader::Parse(R"({"abc": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  ASSERT_TRUE(header);
  const SafetensorsHeader moved = std::move(*header);
  EXPECT_EQ(moved.tensors()[0].name, "abc");
}

TEST(SafetensorsHeader, AnEmptyTensorMayLieAnywhereBetweenOthers) {
  const auto header = SafetensorsHeader::Parse(
      R"({"a": {"dtype":"U8","shape":[2],"data_offsets":[0,2]}, "e": {"dtype":"U8","shape":[0,9],"data_offsets":[2,2]},
          "z": {"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      "x");
  EXPECT_TRUE(header) << header.error().message();
}

struct BadHeader {
  const char* name;
  std::string json;
  const char* message;
};
class SafetensorsRefuses : public ::testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsRefuses, NamingFileTensorExpectedAndGot) {
  EXPECT_THAT(Message(GetParam().json), ::testing::AllOf(HasSubstr("a.safetensors"), HasSubstr(GetParam().message)));
  EXPECT_EQ(SafetensorsHeader::Parse(GetParam().json, "x").error().code(), ErrorCode::kCorrupt);
}

std::string Deep(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsRefuses,
    ::testing::Values(
        BadHeader{"Nothing", "", "not valid JSON"}, BadHeader{"Text", "hello", "not valid JSON"},
        BadHeader{"CutOff", R"({"a": {"dtype": "U8")", "not valid JSON"},
        BadHeader{"InvalidUtf8", "{\"a\xff\": 1}", "not valid JSON"}, BadHeader{"List", "[]", "expected a JSON object"},
        BadHeader{"DeepNesting", R"({"a": )" + Deep(100000) + "}", "levels deep"},
        BadHeader{"NotAnObject", R"({"a": 1})", "tensor 'a': expected an object"},
        BadHeader{"NoDtype", R"({"a": {"shape":[1],"data_offsets":[0,1]}})", "got no dtype"},
        BadHeader{"NoShape", R"({"a": {"dtype":"U8","data_offsets":[0,1]}})", "got no shape"},
        BadHeader{"NoOffsets", R"({"a": {"dtype":"U8","shape":[1]}})", "got no data_offsets"},
        BadHeader{"KeyTwice", R"({"a": {"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                  "each once, got 'dtype'"},
        BadHeader{"UnknownKey", R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "got 'x'"},
        BadHeader{"OtherDtype", R"({"a": {"dtype":"F16","shape":[1],"data_offsets":[0,2]}})",
                  "tensor 'a': expected dtype F32, BF16, U8 or I64, got 'F16'"},
        BadHeader{"DtypeNumber", R"({"a": {"dtype":8,"shape":[1],"data_offsets":[0,2]}})", "expected dtype"},
        BadHeader{"HugeRank", R"({"a": {"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[0,1]}})",
                  "at most 4 dimensions"},
        BadHeader{"NegativeDimension", R"({"a": {"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
                  "not a whole number"},
        BadHeader{"FractionalDimension", R"({"a": {"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})",
                  "not a whole number"},
        BadHeader{"HugeDimension", R"({"a": {"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})",
                  "got 18446744073709551615"},
        BadHeader{"ProductOverflows",
                  R"({"a": {"dtype":"F32","shape":[281474976710656,281474976710656],"data_offsets":[0,0]}})",
                  "less than 2^64 bytes"},
        BadHeader{"ShapeText", R"({"a": {"dtype":"U8","shape":"1","data_offsets":[0,1]}})", "expected a shape"},
        BadHeader{"OneOffset", R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[0]}})", "got 1 numbers"},
        BadHeader{"ThreeOffsets", R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "more than two"},
        BadHeader{"OffsetsBackwards", R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", "got [2, 1]"},
        BadHeader{"OffsetBeyondFiles",
                  R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})",
                  "inside a file"},
        BadHeader{"NegativeOffset", R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", "not a whole number"},
        BadHeader{"SizeDiffers", R"({"a": {"dtype":"F32","shape":[2],"data_offsets":[0,9]}})",
                  "tensor 'a': expected 8 bytes for F32 [2], got 9 between its data_offsets"},
        BadHeader{
            "Overlap",
            R"({"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b": {"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
            "tensor 'b' overlaps 'a': expected data from offset 4 on, got 3"},
        BadHeader{
            "Gap",
            R"({"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b": {"dtype":"U8","shape":[2],"data_offsets":[5,7]}})",
            "tensor 'b': expected data to begin at offset 4"},
        BadHeader{"GapAtTheStart", R"({"a": {"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", "begin at offset 0"},
        BadHeader{
            "NameTwice",
            R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a": {"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            "tensor 'a': expected once in the header, got it twice"},
        BadHeader{"EmptyName", R"({"": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "expected a name"},
        BadHeader{"MetadataNumbers", R"({"__metadata__": {"a": 1}})", "__metadata__: expected an object of strings"},
        BadHeader{"MetadataTwice", R"({"__metadata__": {}, "__metadata__": {}})", "__metadata__: expected once"}),
    [](const auto& test) { return test.param.name; });

TEST(HeaderLength, IsLittleEndianAndMustFitTheFile) {
  const std::string first("\x10\x02\0\0\0\0\0\0", 8);
  EXPECT_EQ(*ReadHeaderLength(first, 0x210 + 8, "x"), 0x210u);
  EXPECT_THAT(ReadHeaderLength(first, 0x210 + 7, "x").error().message(),
              HasSubstr("truncated: expected a header of 528 bytes, got a file of 535 bytes"));
}

TEST(HeaderLength, HostileLengthsAreRefusedBeforeAnythingIsAllocated) {
  const std::string huge(8, '\xff');
  EXPECT_THAT(ReadHeaderLength(huge, UINT64_MAX, "x").error().message(),
              HasSubstr("header length: expected at most 134217728 bytes, got 18446744073709551615"));
  EXPECT_THAT(ReadHeaderLength("abc", 3, "x").error().message(), HasSubstr("got a file of 3 bytes"));
}

TEST(HeaderLength, AGitLfsPointerIsNamedAsSuch) {
  EXPECT_THAT(ReadHeaderLength("version ", 134, "x").error().message(), HasSubstr("git-lfs pointer"));
}

std::string IndexMessage(std::string_view json) {
  const Status parsed = ParseIndex(json, "index.json", [](std::string_view, std::string_view) { return Status(); });
  return parsed ? "accepted" : parsed.error().message();
}

TEST(SafetensorsIndex, VisitsEveryTensorWithItsFile) {
  std::vector<std::pair<std::string, std::string>> seen;
  const Status parsed =
      ParseIndex(R"({"metadata": {"total_size": 3}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})", "x",
                 [&](std::string_view tensor, std::string_view shard) {
                   seen.emplace_back(tensor, shard);
                   return Status();
                 });
  ASSERT_TRUE(parsed);
  EXPECT_THAT(seen, ::testing::ElementsAre(std::pair("a", "1.safetensors"), std::pair("b", "2.safetensors")));
}

TEST(SafetensorsIndex, ShardNamesStayInsideTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    const std::string json = std::string(R"({"weight_map": {"t": ")") + name + "\"}}";
    EXPECT_THAT(IndexMessage(json), HasSubstr("tensor 't': expected the name of a file in the same folder")) << name;
  }
}

TEST(SafetensorsIndex, RefusesOtherDocuments) {
  EXPECT_THAT(IndexMessage("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(IndexMessage("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(IndexMessage(R"({"weight_map": 1})"), HasSubstr("weight_map"));
  EXPECT_THAT(IndexMessage(R"({"weight_map": {"a": 1}})"), HasSubstr("tensor 'a': expected a file name"));
}

}  // namespace
}  // namespace deltafin
