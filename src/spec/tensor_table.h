// TensorTable: every tensor that the text model has in a checkpoint: name, role, dtype, and shape as a formula of the
// spec.
//
// It is a pure function of ModelSpec and owns no weights. Names are those of the release. A tensor belongs to one
// layer, to the globals, or to a routed expert; only routed experts are MXFP4 (whatever the config's ignore patterns
// say). Source: shard headers of the release, summed over all names (they reproduce metadata.total_size exactly).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/expert_record.h"
#include "spec/model_spec.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltafin {

inline constexpr std::string_view kTextPrefix = "language_model.";
inline constexpr std::string_view kLayerPrefix = "language_model.model.layers.";
inline constexpr std::string_view kExpertPrefix = "block_sparse_moe.experts.";

inline constexpr std::string_view kEmbedTokens = "language_model.model.embed_tokens.weight";

// One row of the table. `name` is the part after "language_model.model.layers.N." (layers), after "...experts.E."
// (experts), or the full name (globals).
struct TensorSpec {
  std::string_view name;
  std::string_view role;
  DType dtype = DType::kBF16;
  Shape shape;
  // The file may hold more entries than `shape` says, as padding at the end (A_log; rank 1 only).
  bool padded = false;

  bool Matches(DType got_dtype, const Shape& got_shape) const;
  // "BF16 [96, 128]".
  std::string Expected() const;
};

std::vector<TensorSpec> GlobalTensors(const ModelSpec& spec);
std::vector<TensorSpec> LayerTensors(const ModelSpec& spec, int layer);

// Six tensors: index 2 * matrix is the packed one, 2 * matrix + 1 its scales.
inline constexpr int kExpertParts = 6;
std::array<TensorSpec, kExpertParts> ExpertTensors(const ModelSpec& spec);

std::string LayerTensorName(int layer, std::string_view name);
std::string ExpertTensorName(int layer, int64_t expert, std::string_view name);

// What a checkpoint name is about, by its spelling alone.
struct TensorName {
  enum class Kind : uint8_t { kGlobal, kLayer, kExpert, kVision, kUnknown };
  Kind kind = Kind::kUnknown;
  int layer = -1;         // kLayer, kExpert
  int64_t expert = -1;    // kExpert
  std::string_view rest;  // as TensorSpec::name
};
TensorName ParseTensorName(std::string_view name);

}  // namespace deltafin
