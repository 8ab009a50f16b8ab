// small_dspark.h: the example of the specification of drafting, part A.9: a drafter of two layers whose weights come
// from a generator, written as a checkpoint folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "draft/dspark_drafter.h"
#include "spec/model_spec.h"

namespace deltafin::test {

constexpr int64_t kSmallHidden = 16, kSmallVocab = 32, kSmallBlock = 4;

// g(0) = 0xE220A8397B1DCDAF.
uint64_t SplitMix(uint64_t x);
// -0.5 to 0.5.
double SmallUniform(uint64_t tensor, uint64_t element);

// What DsparkConfig::Parse looks at.
ModelSpec SmallTarget();
std::string SmallConfig();

struct SmallTensor {
  std::string name;
  Shape shape;
  std::vector<uint16_t> values;  // BF16
  DType dtype = DType::kBF16;
};
std::vector<SmallTensor> SmallTensors();
// Writes config.json and model.safetensors.
void WriteSmallDspark(const std::string& folder, const std::string& config, const std::vector<SmallTensor>& tensors);

// Three rows of both taps, [3, 32].
std::vector<float> SmallContext();

// Embedding and head of the example.
class SmallTables final : public DsparkTarget {
 public:
  SmallTables();
  Status Embed(std::span<const TokenId> ids, const Rows& out) override;
  Status Head(const ConstRows& h, const Rows& logits) override;

  std::vector<float> embedding, head;
  std::vector<float> base_logits;  // of the last call
  bool fails = false;
};

}  // namespace deltafin::test
