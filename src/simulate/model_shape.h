// ModelShape: what a step costs by the model's sizes alone: bytes of every layer's dense weights, of an expert, of what
// a conversation carries.
//
// Made from a ModelSpec, so every size is the model's own. A value type. `router_bytes` of a layer are touched before
// its router has chosen, `shared_bytes` while its experts are being read. Formulas: spec/tensor_table.h for bytes; two
// operations for each weight and row.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_spec.h"

namespace deltafin::simulate {

struct LayerShape {
  bool has_experts = false;
  double router_bytes = 0;  // attention, norms, router; of a layer without experts all of it
  double shared_bytes = 0;  // projections into the experts' space and back, shared experts
  double state_bytes = 0;   // of a conversation, read and written for every row
  double bytes() const { return router_bytes + shared_bytes; }
};

struct ModelShape {
  std::vector<LayerShape> layers;
  int64_t experts = 0;  // of a layer
  int64_t experts_per_token = 0;
  double record_bytes = 0;
  double expert_weights = 0;     // weights of one expert
  double head_bytes = 0;         // of the matrix that gives logits
  double kept_state_bytes = 0;   // of a conversation, whatever its length
  double bytes_per_context = 0;  // of every token of a conversation
  double row_bytes = 0;          // activations of a row of a step

  int64_t expert_layers() const;
  double dense_bytes() const;  // BF16, the embedding left out, of which a row is read a token
  // Of the layers and, last, of the head: what is read in one piece where dense weights do not stay in memory.
  std::vector<double> unit_bytes() const;
  // Their numbers, the largest first: in this order they are kept in memory, so that buffers for the others are small.
  std::vector<size_t> units_by_size() const;
  double all_expert_bytes() const;

  static ModelShape From(const ModelSpec& spec);
};

}  // namespace deltafin::simulate
