// The forward pass of Kimi K3: one function over a device (backend/backend.h), the same for a prompt chunk, a decode
// step, and the check of drafted tokens.
//
// A pass advances every sequence of the batch or none (model/sequence_state.h); one whose segment keeps what it can be
// replayed with (model/kda_replay.h) is left to the caller. It allocates nothing. A failed read or
// a cancellation ends it with an error within one layer; the Model stays usable. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "cache/expert_cache.h"
#include "checkpoint/tensor_store.h"
#include "model/activation_tap.h"
#include "model/activations.h"
#include "model/expert_lookahead.h"
#include "model/routed_experts.h"
#include "model/step_batch.h"
#include "spec/model_spec.h"

namespace deltafin {

// What a pass works with. References outlive the Model.
struct Model {
  Model(const ModelSpec& spec, Backend& backend, TensorStore& dense, ExpertCache& cache, Activations activations);

  const ModelSpec& spec;
  Backend& backend;
  TensorStore& dense;
  Activations a;
  RoutedExperts experts;
  ExpertLookahead lookahead;
  ActivationTap* tap = nullptr;                 // not owned; null: off
  std::function<void(int32_t layer)> on_layer;  // called before each layer; empty: nobody watches
  // Called with the running sum as it leaves a layer, [R, H]; empty: nobody wants it.
  std::function<void(int32_t layer, const ConstRows& sum)> on_output;
  uint64_t layer_passes = 0;                    // layers computed so far
  std::vector<TokenId> row_numbers;             // 0, 1, 2, ...: embedding rows arrive gathered
};

// Bytes of scratch a backend needs for steps of this size.
WorkspaceLimits WorkspaceFor(const ModelSpec& spec, int64_t max_rows);

Status Forward(Model& m, const StepBatch& batch);

}  // namespace deltafin
