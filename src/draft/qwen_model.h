// QwenModel: a Qwen3 model that reads ids and says how likely each id is to come next.
//
// Dense, causal, grouped-query attention; the keys and values of what was read are kept, so ids are read once and a
// text that changes behind some point is read again from there (Truncate). Computed in float32 from BF16 weights; keys
// and values are kept in BF16, or in float32 to compare with float32 computations. Results do not depend on how ids
// were cut into calls. Grouped-query attention runs as the backend's latent attention: the latent of a position is its
// value, its key is the rotated part, and the matrix that would expand latents is the identity.
// Formulas: specification of drafting, part C.1. Memory is taken in Create(). Thread rule: engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "base/result.h"
#include "draft/draft_tensors.h"
#include "draft/qwen_config.h"

namespace deltafin {

struct QwenModelOptions {
  int64_t capacity = 0;  // most ids
  bool bf16_cache = true;
};

class QwenModel {
 public:
  // Besides the weights.
  static uint64_t Bytes(const QwenConfig& config, const QwenModelOptions& options);
  // What the backend must have been reserved for.
  static WorkspaceLimits Workspace(const QwenConfig& config);
  // Weights are loaded: those of QwenTensors(). All references outlive the model. kOutOfMemory.
  static Result<std::unique_ptr<QwenModel>> Create(const QwenConfig& config, const DraftTensors& weights,
                                                   Backend& backend, const QwenModelOptions& options);

  const QwenConfig& config() const { return config_; }
  int64_t capacity() const { return options_.capacity; }
  int64_t length() const { return length_; }  // ids that were read

  // Only the first `length` ids count.
  void Truncate(int64_t length);
  // Reads more ids: below config().vocab, for which there is room; at least one.
  void Append(std::span<const TokenId> ids);
  // Of what follows the last id: [vocab]. Valid until the next call of Append.
  std::span<const float> logits() const { return {logits_.data, static_cast<size_t>(config_.vocab)}; }

 private:
  struct Layer {
    TensorView input_norm, post_norm, q, k, v, o, q_norm, k_norm, gate, up, down;
  };

  QwenModel(const QwenConfig& config, const DraftTensors& weights, Backend& backend, const QwenModelOptions& options);
  uint64_t Layout(std::byte* base);
  void AppendRows(std::span<const TokenId> ids, bool last);
  void SetAngles(int64_t rows);
  void Rotate(const Rows& heads, int64_t rows, int64_t count) const;
  void Attend(const Layer& layer, size_t number, int64_t rows);
  void Mlp(const Layer& layer, int64_t rows);
  void Norm(const TensorView& weight, const ConstRows& x, const Rows& out) {
    backend_.RmsNorm({.x = x, .weight = weight, .eps = config_.norm_eps, .out = out});
  }
  PackedRows CacheRows(size_t layer, int64_t head, int64_t first, int64_t rows) const;

  const QwenConfig& config_;
  Backend& backend_;
  QwenModelOptions options_;
  TensorView embedding_, final_norm_;
  std::vector<Layer> layers_;
  std::vector<double> frequencies_;  // [head_dim / 2]

  AlignedBuffer memory_;
  std::vector<std::byte*> cache_;  // of layer l and key head g at l * kv_heads + g: [page_rows_, 2 * head_dim]
  int64_t page_rows_ = 0;
  uint16_t* identity_ = nullptr;                                // BF16 [group * head_dim, head_dim]
  Rows x_, n_, y_, q_, k_, v_, attended_, joined_, gate_, up_;  // [kRowsAtOnce, ...]
  Rows cosine_, sine_;                                          // [kRowsAtOnce, head_dim / 2]
  Rows logits_;                                                 // [1, vocab]
  int64_t length_ = 0;
};

}  // namespace deltafin
