// What src/synth writes, seen by src/checkpoint.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "spec/expert_record.h"
#include "support/checkpoint_builder.h"
#include "support/test_data.h"
#include "synth/raw_safetensors.h"
#include "synth/synth.h"

namespace deltafin {
namespace {

TEST(SyntheticCheckpoint, OpensWithEveryTensorAtItsPlace) {
  const test::TempFolder folder;
  test::BuildTinyCheckpoint(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open({.folder = folder.path(), .index_cache_folder = ""});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const SynthPlan plan = PlanSynth(test::TinySpec());
  uint64_t dense_bytes = 0;
  for (int layer = -1; layer < 5; ++layer) {
    for (const std::string& name : checkpoint->DenseNames(layer)) dense_bytes += checkpoint->Dense(name).bytes;
    const int shard = layer < 0 ? 6 : layer + 1;
    const auto raw =
        test::RawSafetensors::Read(folder.path() + "/model-0000" + std::to_string(shard) + "-of-000006.safetensors");
    for (const std::string& name : checkpoint->DenseNames(layer)) {
      const TensorPlace& place = checkpoint->Dense(name);
      const auto& offsets = raw.header.at(name).at("data_offsets");
      EXPECT_EQ(place.offset, 8 + raw.header_bytes + offsets[0].get<uint64_t>()) << name;
      EXPECT_EQ(place.bytes, offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>()) << name;
    }
  }
  EXPECT_EQ(dense_bytes, plan.dense_bytes);
}

TEST(SyntheticCheckpoint, HasExpertsBackToBackWithUsableScales) {
  const test::TempFolder folder;
  test::BuildTinyCheckpoint(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open({.folder = folder.path(), .index_cache_folder = ""});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const ExpertGeometry geometry(checkpoint->spec());
  for (int layer = 1; layer < 5; ++layer) {
    const auto raw = test::RawSafetensors::Read(folder.path() + "/model-0000" + std::to_string(layer + 1) +
                                                "-of-000006.safetensors");
    for (int expert = 0; expert < 10; ++expert) {
      const ExpertPlace& place = checkpoint->Expert({layer, expert});
      const uint64_t begin = place.offset - 8 - raw.header_bytes;
      ASSERT_LE(begin + static_cast<uint64_t>(geometry.record_bytes()), raw.data.size());
      const auto* record = reinterpret_cast<const std::byte*>(raw.data.data()) + begin;
      EXPECT_FALSE(FindBadScale(ViewExpert(geometry, place.layout, record)).has_value()) << layer << " " << expert;
    }
  }
}

}  // namespace
}  // namespace deltafin
