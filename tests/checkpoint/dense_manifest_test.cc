// The manifest of packed dense weights: what is written reads back the same; what contradicts itself is refused.
#include "checkpoint/dense_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/manifest_text.h"
#include "tensor/bf12.h"

namespace deltafin {
namespace {

using ::testing::HasSubstr;

DenseManifest Example() {
  DenseManifest m;
  m.model_id = 0x1234567890abcdef;
  m.layers = 1;
  DenseUnit layer;
  layer.unit = 0;
  layer.bytes = 16 * kDensePage;
  layer.hash = 77;
  const uint64_t packed = Bf12View::RowsAt(100) + static_cast<uint64_t>(100 * Bf12PackedRowBytes(256)) + 8;
  layer.tensors = {{"a", DType::kBf12, {100, 256}, 0, packed, 0, 2},
                   {"b", DType::kF32, {12, 1, 4}, AlignUp(packed, 64), 192, 0, 0},
                   {"c", DType::kBF16, {33}, AlignUp(packed, 64) + 192, 66, 0, 0}};
  DenseUnit head = layer;
  head.unit = 1;
  m.units = {layer, head};
  return m;
}

// The example's text after a change, with a checksum that is right.
std::string Message(const std::function<void(Json&)>& edit) {
  const std::string text = Example().ToText();
  Json json = Json::parse(text);
  json.erase("checksum");
  edit(json);
  const Result<DenseManifest> manifest = DenseManifest::FromText(ManifestText(json), "m.json");
  if (manifest) return "";
  EXPECT_TRUE(manifest.error().code() == ErrorCode::kCorrupt || manifest.error().code() == ErrorCode::kUnsupported);
  return manifest.error().message();
}

TEST(DenseManifest, ReadsBackWhatItWrote) {
  const DenseManifest m = Example();
  const Result<DenseManifest> again = DenseManifest::FromText(m.ToText(), "m.json");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->model_id, m.model_id);
  EXPECT_EQ(again->layers, m.layers);
  EXPECT_EQ(again->units, m.units);
  EXPECT_TRUE(again->complete());
  EXPECT_EQ(again->bytes(), 32 * kDensePage);
  EXPECT_EQ(m.FileName(0), "deltafin-dense-layer-000.bin");
  EXPECT_EQ(m.FileName(1), "deltafin-dense-head.bin");
  EXPECT_EQ(Message([](Json&) {}), "");
}

TEST(DenseManifest, IsIncompleteWithoutAUnit) {
  DenseManifest m = Example();
  m.units.erase(m.units.begin());
  const Result<DenseManifest> again = DenseManifest::FromText(m.ToText(), "m.json");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_FALSE(again->complete());
  EXPECT_EQ(again->Find(0), nullptr);
  ASSERT_NE(again->Find(1), nullptr);
  EXPECT_EQ(again->Find(1)->unit, 1);
}

TEST(DenseManifest, AnyChangedByteIsNoticed) {
  const std::string text = Example().ToText();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(DenseManifest::FromText(damaged, "m.json")) << i;
  }
  for (const size_t size : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1})
    EXPECT_FALSE(DenseManifest::FromText(text.substr(0, size), "m.json")) << size;
}

TEST(DenseManifest, WhatContradictsItselfIsRefusedNamingIt) {
  EXPECT_THAT(Message([](Json& j) { j["format"] = "other"; }), HasSubstr("format"));
  EXPECT_THAT(Message([](Json& j) { j["version"] = 2; }), HasSubstr("newer deltafin"));
  EXPECT_THAT(Message([](Json& j) { j["layers"] = 0; }), HasSubstr("layers"));
  EXPECT_THAT(Message([](Json& j) { j["units"][1]["unit"] = 0; }), HasSubstr("file"));
  EXPECT_THAT(Message([](Json& j) { std::swap(j["units"][0], j["units"][1]); }), HasSubstr("unit"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["file"] = "../x"; }), HasSubstr("file"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["bytes"] = 5000; }), HasSubstr("whole pages"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["bytes"] = 4096; }), HasSubstr("within 4096"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][0]["dtype"] = "U8"; }), HasSubstr("dtype"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][0]["shape"] = Json::array({25600}); }), HasSubstr("a:"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][0]["shape"] = Json::array({100, 8}); }), HasSubstr("a:"));
  EXPECT_THAT(Message([](Json& j) {
                j["units"][0]["tensors"][0]["shape"] = Json::array({100, -1});
              }),
              HasSubstr("shape"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][0]["bytes"] = 100; }), HasSubstr("bytes"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][1]["bytes"] = 196; }), HasSubstr("b: expected 192"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][1]["offset"] = 64; }),
              HasSubstr("b: expected a multiple"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][0]["whole_rows"] = 101; }), HasSubstr("whole rows"));
  EXPECT_THAT(Message([](Json& j) { j["units"][0]["tensors"][2]["offset"] = uint64_t{1} << 41; }), HasSubstr("c:"));
}

}  // namespace
}  // namespace deltafin
