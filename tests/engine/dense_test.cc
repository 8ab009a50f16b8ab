// Packed dense weights: the same logits, bit for bit, from less memory; folders that do not fit the model are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/platform.h"
#include "checkpoint/dense_manifest.h"
#include "pack/pack_dense.h"
#include "support/checkpoint_builder.h"
#include "support/engine_runs.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PackDenseReport Pack(const std::string& model, const std::string& to) {
  Result<PackDenseReport> report = PackDense({.model = model, .to = to, .state_folder = ""}, {}, {});
  DFIN_CHECK(report.has_value(), report ? "" : report.error().message().c_str());
  return *report;
}

// Packed once for all tests of this program.
struct PackedModels {
  PackedModels() {
    Pack(test::MicroFolder(), micro());
    Pack(test::NanoFolder(), nano());
  }
  std::string micro() const { return root.path() + "/micro"; }
  std::string nano() const { return root.path() + "/nano"; }
  std::string Of(const std::string& model) const { return model == test::NanoFolder() ? nano() : micro(); }
  test::TempFolder root;
};
const PackedModels& Packed() {
  static const PackedModels models;
  return models;
}

std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab) {
  std::mt19937 random(3);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab)));
  return tokens;
}

// A prompt, then steps of one to three rows, as decoding with drafts feeds them.
std::vector<float> Logits(const EngineOptions& options, int64_t count) {
  test::OpenedEngine engine(options);
  DFIN_CHECK(engine.ok(), "the engine opens");
  Session session = engine->NewSession().value();
  const int64_t prompt = count - 7;
  Result<std::vector<float>> logits =
      test::AllLogits(*engine, session, RandomTokens(count, engine->spec().vocab_size), {prompt, 1, 2, 3, 1});
  DFIN_CHECK(logits.has_value(), logits ? "" : logits.error().message().c_str());
  return std::move(*logits);
}

struct DenseCase {
  std::string name, model, device, isa;
};

std::vector<DenseCase> Cases() {
  std::vector<DenseCase> cases;
  for (const auto& [name, model] : {std::pair("micro", test::MicroFolder()), std::pair("nano", test::NanoFolder())}) {
    cases.push_back({std::string(name) + "_reference", model, "reference", "auto"});
    for (const std::string& isa : test::UsableIsas()) cases.push_back({Cat(name, "_", isa), model, "cpu", isa});
  }
  return cases;
}

class PackedDense : public testing::TestWithParam<DenseCase> {};

TEST_P(PackedDense, GivesTheLogitsOfTheShardsBitForBit) {
  const DenseCase& run = GetParam();
  const bool is_slow = run.device == "reference" || kIsSanitized;
  const int64_t count = is_slow ? 12 : 80;
  EngineOptions options = {.model = run.model, .device = run.device, .isa = run.isa};
  const std::vector<float> expected = Logits(options, count);
  options.dense = Packed().Of(run.model);
  for (const DenseMode mode : {DenseMode::kResident, DenseMode::kStream}) {
    options.dense_mode = mode;
    const std::vector<float> got = Logits(options, count);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << (mode == DenseMode::kStream ? "streamed" : "resident");
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedDense, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(PackedDenseMemory, ThePlanCountsTheSmallerBytesAndSaysSo) {
  EngineOptions options = {.model = test::NanoFolder()};
  const auto dense_row = [&] {
    test::OpenedEngine engine(options);
    for (const MemoryRow& row : engine->plan().rows)
      if (row.name == "dense weights") return row;
    return MemoryRow();
  };
  const MemoryRow before = dense_row();
  options.dense = Packed().nano();
  const MemoryRow after = dense_row();
  EXPECT_LT(after.bytes, before.bytes);
  EXPECT_EQ(after.note, "12-bit, resident");
  EXPECT_EQ(before.note, "resident");
}

TEST(PackedDenseMemory, StreamedBytesAreThoseOfTheFiles) {
  test::OpenedEngine engine({.model = test::NanoFolder(), .dense = Packed().nano(), .dense_mode = DenseMode::kStream});
  Session session = engine->NewSession().value();
  const TokenId token = 5;
  std::vector<float> logits(static_cast<size_t>(engine->spec().vocab_size));
  ASSERT_TRUE(engine->Feed(session, {&token, 1}, Rows(logits.data(), 1, engine->spec().vocab_size), {}));
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Packed().nano()))
    if (entry.path().extension() == ".bin") bytes += entry.file_size();
  const auto embedding_row = static_cast<uint64_t>(engine->spec().hidden_size) * 2;
  EXPECT_EQ(engine->counters().dense_bytes_streamed, bytes + embedding_row);
}

// What happens when an engine opens with the folder.
class DenseFolder : public testing::Test {
 protected:
  DenseFolder() {
    test::BuildTinyCheckpoint(model());
    Pack(model(), folder());
  }
  std::string model() const { return root_.path() + "/model"; }
  std::string folder() const { return root_.path() + "/dense"; }
  std::string manifest() const { return folder() + "/deltafin-dense.json"; }
  // "" when it opens.
  std::string Message(DenseMode mode = DenseMode::kResident, const std::string& at = "") {
    test::OpenedEngine engine({.model = model(), .dense = at.empty() ? folder() : at, .dense_mode = mode});
    code_ = engine.ok() ? ErrorCode::kInternal : engine.error().code();
    if (!engine.ok()) return engine.error().message();
    Session session = engine->NewSession().value();
    const TokenId token = 5;
    std::vector<float> logits(static_cast<size_t>(engine->spec().vocab_size));
    const Status fed = engine->Feed(session, {&token, 1}, Rows(logits.data(), 1, engine->spec().vocab_size), {});
    if (!fed) code_ = fed.error().code();
    return fed ? "" : fed.error().message();
  }
  void Flip(const std::string& path, uint64_t offset) {
    std::FILE* file = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    std::fseek(file, static_cast<long>(offset), SEEK_SET);
    const int byte = std::fgetc(file);
    std::fseek(file, static_cast<long>(offset), SEEK_SET);
    std::fputc(byte ^ 1, file);
    std::fclose(file);
  }

  test::TempFolder root_;
  ErrorCode code_ = ErrorCode::kInternal;
};

TEST_F(DenseFolder, Opens) {
  EXPECT_EQ(Message(), "");
  EXPECT_EQ(Message(DenseMode::kStream), "");
}

TEST_F(DenseFolder, ThatIsMissingOrEmptyIsRefusedNamingPackDense) {
  EXPECT_THAT(Message(DenseMode::kAuto, root_.path() + "/nowhere"), AllOf(HasSubstr("--dense"), HasSubstr("/nowhere")));
  EXPECT_EQ(code_, ErrorCode::kNotFound);
  std::filesystem::create_directory(root_.path() + "/empty");
  EXPECT_THAT(Message(DenseMode::kAuto, root_.path() + "/empty"),
              AllOf(HasSubstr("deltafin-dense.json"), HasSubstr("pack --dense")));
  EXPECT_EQ(code_, ErrorCode::kNotFound);
}

TEST_F(DenseFolder, OfAnotherModelIsRefused) {
  // The same shapes, other values; then another number of layers.
  test::BuildTinyCheckpoint(root_.path() + "/other", {.seed = 2});
  Pack(root_.path() + "/other", root_.path() + "/other-dense");
  EXPECT_THAT(Message(DenseMode::kAuto, root_.path() + "/other-dense"), HasSubstr("got those of model"));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
  test::BuildTinyCheckpoint(root_.path() + "/deeper", {.layers = 6});
  Pack(root_.path() + "/deeper", root_.path() + "/deeper-dense");
  EXPECT_THAT(Message(DenseMode::kAuto, root_.path() + "/deeper-dense"), HasSubstr("expected 5 layers, got 6"));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
}

TEST_F(DenseFolder, ThatIsTruncatedOrUnfinishedIsRefused) {
  const std::string head = folder() + "/deltafin-dense-head.bin";
  std::filesystem::resize_file(head, std::filesystem::file_size(head) - 4096);
  EXPECT_THAT(Message(), AllOf(HasSubstr("deltafin-dense-head.bin"), HasSubstr("bytes, got")));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
  std::filesystem::rename(manifest(), folder() + "/deltafin-dense.partial.json");
  EXPECT_THAT(Message(), HasSubstr("unfinished"));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
}

TEST_F(DenseFolder, WithADamagedManifestIsRefused) {
  Flip(manifest(), 100);
  EXPECT_THAT(Message(), AllOf(HasSubstr("deltafin-dense.json"), HasSubstr("checksum")));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
}

TEST_F(DenseFolder, WithAnyDamagedByteIsRefusedResidentAndStreamed) {
  const std::string layer = folder() + "/deltafin-dense-layer-002.bin";
  const uint64_t size = std::filesystem::file_size(layer);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{5}, size / 3, size / 2, size - 1}) {
    Flip(layer, offset);
    for (const DenseMode mode : {DenseMode::kResident, DenseMode::kStream}) {
      EXPECT_THAT(Message(mode), AllOf(HasSubstr("deltafin-dense-layer-002.bin"), HasSubstr("checksum"))) << offset;
      EXPECT_EQ(code_, ErrorCode::kCorrupt);
    }
    Flip(layer, offset);
  }
  EXPECT_EQ(Message(), "");
}

}  // namespace
}  // namespace deltafin
