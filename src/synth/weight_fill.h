// weight_fill.h: which numbers the tensors of a synthetic checkpoint hold.
//
// Matrices are drawn so that a unit input gives about a unit output (rms = gain / sqrt(columns)), so activations
// neither grow nor vanish over the layers. Embeddings, output head and routers have structure; synth.h says which and
// why. A pure function of (spec, seed, routing, tensor, row): rows can be made in any order, on any number of threads.
// Immutable; thread-safe. Cannot fail.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "checkpoint/safetensors_writer.h"
#include "spec/model_spec.h"
#include "spec/tensor_table.h"

namespace deltafin {

enum class SynthRouting : uint8_t { kSkewed, kUniform };

enum class FillKind : uint8_t {
  kBell,       // mean + rms * bell-shaped
  kConvTaps,   // bell-shaped, the current step's tap around kCurrentTap
  kDecayRate,  // A_log: [0, 1) for the heads, zeros as padding
  kDecayBias,  // dt_bias: slow forgetting
  kCodes,      // packed E2M1: every code equally likely
  kScales,     // E8M0 around 2^scale_exponent
  kEmbedding,
  kHead,
  kRouter,
  kRouterBias,
};

struct SynthTensor {
  TensorDeclaration declaration;
  FillKind kind = FillKind::kBell;
  float mean = 0;
  float rms = 0;
  int scale_exponent = 0;
  int layer = -1;

  // All tensors are filled as matrices; a vector is one row.
  int64_t rows() const { return declaration.shape.rank() == 1 ? 1 : declaration.shape[0]; }
  int64_t row_bytes() const { return static_cast<int64_t>(declaration.bytes()) / rows(); }
};

// `layer` -1: a global. `row` is a row of the spec's tensor table, `name` the full name.
SynthTensor MakeSynthTensor(const ModelSpec& spec, int layer, const TensorSpec& row, const std::string& name);

class WeightFiller {
 public:
  WeightFiller(const ModelSpec& spec, uint64_t seed, SynthRouting routing)
      : spec_(spec), seed_(seed), routing_(routing) {}

  // Rows [begin, end) of `tensor` into `out`, (end - begin) * row_bytes() long.
  void FillRows(const SynthTensor& tensor, int64_t begin, int64_t end, std::byte* out) const;

  // The id that the output head favours after `id`; ordinary ids form one cycle that stays in a cluster for a while.
  int64_t NextToken(int64_t id) const;
  int64_t PreviousToken(int64_t id) const;
  int64_t ClusterOf(int64_t id) const;

 private:
  void FillFloats(const SynthTensor& tensor, int64_t row, std::span<float> out) const;
  void FillEmbedding(const SynthTensor& tensor, int64_t row, std::span<float> out) const;
  void FillHead(const SynthTensor& tensor, int64_t row, std::span<float> out) const;
  void FillRouter(const SynthTensor& tensor, int64_t row, std::span<float> out) const;
  void FillRouterBias(const SynthTensor& tensor, std::span<float> out) const;
  // out += weight * (the unit-variance vector that belongs to `name` and `index`)
  void AddDirection(std::string_view name, uint64_t index, float weight, std::span<float> out) const;
  int64_t clusters() const;

  ModelSpec spec_;
  uint64_t seed_;
  SynthRouting routing_;
};

}  // namespace deltafin
