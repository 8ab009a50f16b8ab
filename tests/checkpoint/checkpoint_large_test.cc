// Opening a folder as large as the release: 497,220 names, 76 MB of headers, 1.56 TB of (sparse) data. Takes half a
// minute, most of it making the folder; run alone.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/platform.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/micro_copy.h"
#include "spec/tensor_table.h"
#include "support/release_config.h"

namespace deltafin {
namespace {

constexpr int kTextShards = 94;  // 93 layers and the globals

std::string ShardName(int number) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-000096.safetensors", number);
  return name;
}

// Writes one shard: header, then a hole of the data's size. Names also go to the index.
class ShardMaker {
 public:
  ShardMaker(const std::string& folder, int number, std::ofstream& index)
      : path_(folder + "/" + ShardName(number)), shard_(ShardName(number)), index_(index) {}

  void Add(const std::string& name, DType dtype, const Shape& shape) {
    const auto end = end_ + static_cast<uint64_t>(shape.elements() * ByteSize(dtype));
    json_ += json_.empty() ? "{\"" : ",\"";
    json_ += name + "\":{\"dtype\":\"" + std::string(ToString(dtype)) + "\",\"shape\":" + ToString(shape) +
             ",\"data_offsets\":[" + std::to_string(end_) + "," + std::to_string(end) + "]}";
    end_ = end;
    index_ << (index_.tellp() > 100 ? ",\n" : "\n") << "    \"" << name << "\": \"" << shard_ << '"';
  }
  uint64_t Finish() {
    json_ += '}';
    json_.resize(AlignUp(json_.size(), 8), ' ');
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json_.size() >> (8 * i) & 255);
    test::WriteBytes(path_, length + json_);
    std::filesystem::resize_file(path_, 8 + json_.size() + end_);
    return json_.size();
  }

 private:
  std::string path_, shard_, json_;
  std::ofstream& index_;
  uint64_t end_ = 0;
};

// As the release does: A_log padded to head_dim entries.
Shape StoredShape(const TensorSpec& tensor) { return tensor.padded ? Shape{128} : tensor.shape; }

uint64_t MakeRelease(const std::string& folder) {
  const Json config = test::ReleaseConfig();
  test::WriteBytes(folder + "/config.json", config.dump(1));
  const ModelSpec spec = *ModelSpec::FromConfig(config, "config.json");
  const auto parts = ExpertTensors(spec);
  std::ofstream index(folder + "/model.safetensors.index.json");
  index << "{\n  \"metadata\": {\n    \"total_size\": 1560860324864\n  },\n  \"weight_map\": {";
  uint64_t header_bytes = 0;
  for (int number = 1; number <= kTextShards; ++number) {
    ShardMaker shard(folder, number, index);
    const int layer = number - 1;
    if (number == kTextShards) {
      for (const TensorSpec& t : GlobalTensors(spec)) shard.Add(std::string(t.name), t.dtype, t.shape);
    } else {
      for (int64_t e = 0; layer > 0 && e < spec.num_experts; ++e)
        for (const TensorSpec& t : parts) shard.Add(ExpertTensorName(layer, e, t.name), t.dtype, t.shape);
      for (const TensorSpec& t : LayerTensors(spec, layer))
        shard.Add(LayerTensorName(layer, t.name), t.dtype, StoredShape(t));
    }
    header_bytes += shard.Finish();
  }
  // The vision shards are named and absent.
  for (int i = 0; i < 168; ++i)
    index << ",\n    \"vision_tower.tensor." << i << "\": \"" << ShardName(i < 3 ? 95 : 96) << '"';
  index << "\n  }\n}\n";
  return header_bytes;
}

rusage Usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}
double PeakMegabytes() { return static_cast<double>(Usage().ru_maxrss) / 1024; }
double CpuSeconds() {
  const rusage usage = Usage();
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(CheckpointAtFullSize, OpensInBoundedMemoryAndIsCached) {
  const test::TempFolder folder, cache;
  const uint64_t header_bytes = MakeRelease(folder.path());
  const double before = PeakMegabytes();
  const auto open = [&] {
    const auto from = std::chrono::steady_clock::now();
    const double cpu = CpuSeconds();
    auto opened = Checkpoint::Open({folder.path(), cache.path()});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
    std::printf("opened in %.2f s (%.2f s of processor time), peak memory %.0f MB (%.0f MB before)\n", took.count(),
                CpuSeconds() - cpu, PeakMegabytes(), before);
    return opened;
  };
  std::printf("headers %.1f MB, index %.1f MB\n", static_cast<double>(header_bytes) * 1e-6,
              static_cast<double>(std::filesystem::file_size(folder.path() + "/model.safetensors.index.json")) * 1e-6);
  const Result<Checkpoint> first = open();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_FALSE(first->headers_were_cached());
  // Figures: the release's shards (spec/tensors_and_vision.md, 13.8).
  uint64_t dense_bytes = 0;
  for (int layer = -1; layer < static_cast<int>(first->spec().layers.size()); ++layer)
    for (const std::string& name : first->DenseNames(layer)) dense_bytes += first->Dense(name).bytes;
  EXPECT_EQ(dense_bytes, 113'509'540'864u);
  EXPECT_EQ(first->shard_count(), kTextShards);
  if (!kIsSanitized) {
    EXPECT_LT(PeakMegabytes() - before, 400);
  }

  const Result<Checkpoint> second = open();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->headers_were_cached());
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
  EXPECT_EQ(second->Expert({92, 895}).offset, first->Expert({92, 895}).offset);
}

}  // namespace
}  // namespace deltafin
