// Activations: every buffer of a step, with its shape, taken once for a largest number of rows.
//
// R rows of this step. Three groups share one block of memory, because they are never alive together: attention (KDA or
// MLA), dense feed-forward, mixture of experts. What a row needs inside of them is large, so steps of more than
// kRowsAtOnce rows, long prompts, hold it for fewer heads, rows or experts at a time: attention goes through a few
// heads after the other for all rows, dense feed-forward through kRowsAtOnce rows after the other, and experts are
// added as they come. Not thread-safe: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

class Activations {
 public:
  static uint64_t Bytes(const ModelSpec& spec, int64_t max_rows);
  static Result<Activations> Create(const ModelSpec& spec, int64_t max_rows);

  static constexpr int64_t kRowsAtOnce = 512;

  int64_t max_rows() const { return max_rows_; }

  // Makes every view below `rows` rows long and empties the stack.
  void BeginStep(int64_t rows);

  // The running sum moves onto the AttnRes stack; the new sum starts elsewhere.
  void PushBlock();
  std::span<const ConstRows> blocks() const { return {blocks_.data(), static_cast<size_t>(depth_)}; }

  Rows prefix_sum;  // [R, H] running sum of the current block
  Rows x;           // [R, H] normalised input of the sublayer
  Rows y;           // [R, H] output of the sublayer

  // Widths for all h heads; kda.heads (mla.heads) of them at a time are in the wide ones but `out`.
  struct {
    int64_t heads = 0;
    Rows q_proj, k_proj, v_proj;  // [R, heads * d] projections
    Rows q, k, v;                 // [R, heads * d] after the short convolution
    Rows f_a;                     // [R, d]
    Rows decay;                   // [R, heads * d] raw
    Rows beta;                    // [R, h] raw
    Rows gate;                    // [R, heads * d]
    Rows out;                     // [R, W]
  } kda;

  struct {
    int64_t heads = 0;
    Rows q_a;   // [R, q_lora_rank]
    Rows q;     // [R, heads * (nope + rope)]
    Rows kv_a;  // [R, kv_lora_rank + rope]
    Rows gate;  // [R, heads * v]
    Rows out;   // [R, h * v]
  } mla;

  struct {
    Rows gate, up;  // [R or kRowsAtOnce, intermediate_size]
  } dense;

  // For asking the next layer's router early (model/expert_lookahead.h); only for steps of at most kLookaheadRows.
  static constexpr int64_t kLookaheadRows = 4;
  struct {
    Rows x;                           // [R, H]
    Rows scores;                      // [R, E]
    std::span<int32_t> expert_ids;    // [R * top_k]
    std::span<float> expert_weights;  // [R * top_k]
  } lookahead;

  struct {
    Rows scores;                  // [R, E]
    Rows latent;                  // [R, L]
    Rows shared_gate, shared_up;  // [R or kRowsAtOnce, shared_width]
    // [R * top_k, L] one row per routed expert of a token; with more than kRowsAtOnce rows [R, L], those of one expert
    Rows partial;
    Rows mixed;                       // [R, L]
    Rows up;                          // [R, H]
    std::span<int32_t> expert_ids;    // [R * top_k] descending by biased score
    std::span<float> expert_weights;  // [R * top_k]
  } moe;

 private:
  Activations() = default;
  uint64_t Layout(const ModelSpec& spec, int64_t rows, std::byte* base);

  ModelSpec spec_;
  int64_t max_rows_ = 0;
  AlignedBuffer memory_;
  std::vector<Rows> stack_;  // [depth limit + 1] buffers; prefix_sum is the one after the pushed ones
  std::vector<ConstRows> blocks_;
  int64_t depth_ = 0;
};

}  // namespace deltafin
