// DsparkDrafter: proposes up to seven tokens at once from the model's own rows: a small transformer that attends to
// what five of the model's layers made of every token so far.
//
// Context: for each token that the model has read, one latent row a draft layer (Append). A proposal runs the last
// token and six masks as one block, every row seeing the whole context and the whole block, then picks tokens one after
// the other with a correction from the token before (Markov head). Rows of the block are scratch: a proposal changes
// nothing, so nothing has to be taken back. The context follows the session by its tokens: when the session went back
// to a prefix it is cut, and when it does not reach back to the session's beginning nothing is proposed (the model is
// not run again for it, and checkpoints do not keep it). Beyond `context` tokens, and after a number that is none, it
// is dropped until a session begins anew: acceptance falls on long texts.
//
// Numbers as the checkpoints were trained: BF16 weights, float32 sums, the output of each operator rounded to BF16.
// Formulas: specification of drafting, parts A.4 to A.8. Memory is taken in Create(). Thread rule: engine thread only.
// Errors: kCorrupt (a number that is none), those of the target.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/result.h"
#include "draft/drafter.h"
#include "draft/dspark_weights.h"
#include "draft/session_observer.h"

namespace deltafin {

// What the drafter uses of the model that it drafts for.
class DsparkTarget {
 public:
  virtual ~DsparkTarget() = default;
  // out[i] = embedding of ids[i].
  virtual Status Embed(std::span<const TokenId> ids, const Rows& out) = 0;
  // The model's output matrix: logits[i] = lm_head h[i].
  virtual Status Head(const ConstRows& h, const Rows& logits) = 0;
};

struct DsparkOptions {
  int64_t context = 0;        // most tokens
  int64_t pass_rows = 0;      // most rows of a pass over the model
  int64_t usable_vocab = 0;   // ids from here on are never proposed; 0: all may be
  bool round_to_bf16 = true;  // false: to compare with float32 computations
};

class DsparkDrafter final : public Drafter, public SessionObserver {
 public:
  static constexpr int64_t kBlockRows = 7;

  // Besides the weights.
  static uint64_t Bytes(const DsparkConfig& config, const DsparkOptions& options);
  // What the backend must have been reserved for.
  static WorkspaceLimits Workspace(const DsparkConfig& config);
  // Weights are loaded. All references outlive the drafter. `block_rows`: other than kBlockRows only for small
  // examples.
  static Result<std::unique_ptr<DsparkDrafter>> Create(const DsparkWeights& weights, Backend& backend,
                                                       DsparkTarget& target, const DsparkOptions& options,
                                                       int64_t block_rows = kBlockRows);

  std::string_view name() const override { return "dspark"; }
  bool costs_nothing() const override { return false; }
  int64_t most() const override { return block_rows_; }
  Result<Proposal> Propose(std::span<const TokenId> history, std::span<TokenId> out) override;
  SessionObserver* observer() override { return this; }
  std::string_view silence() const override;

  void OnLayer(int32_t layer, const ConstRows& sum) override;
  void OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) override;

  // Tokens of the context.
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  // Rows [length, kv_lora + rope] of one draft layer; of the last proposal [block rows, hidden] and [proposed, vocab].
  ConstRows Context(int64_t layer) const { return cache_[static_cast<size_t>(layer)].Slice(0, length()); }
  ConstRows block_output() const { return h_; }
  ConstRows block_logits() const { return logits_; }

 private:
  struct LayerWeights {
    TensorView input_norm, post_norm, q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b, o, gate, up, down;
  };

  DsparkDrafter(const DsparkWeights& weights, Backend& backend, DsparkTarget& target, const DsparkOptions& options,
                int64_t block_rows);
  uint64_t Layout(std::byte* base);
  // False: a latent is not a number.
  bool Append(int64_t first_row, int64_t rows, int64_t first_position);
  void KeepLatents(const LayerWeights& w, const ConstRows& z, int64_t first_position, const Rows& cache);
  void Attend(const LayerWeights& w, const Rows& cache, int64_t length);
  void RunBlock(int64_t length);
  Failure Broken();
  Result<Proposal> PickTokens(TokenId anchor, std::span<TokenId> out);
  TokenId Likeliest(const float* logits) const;
  float Confidence(const float* h, const float* e) const;
  void Linear(const TensorView& weight, const ConstRows& x, const Rows& out);
  void Norm(const TensorView& weight, const ConstRows& x, const Rows& out) const;
  void Round(const Rows& rows) const;
  float Rounded(float value) const;

  const DsparkConfig& config_;
  Backend& backend_;
  DsparkTarget& target_;
  DsparkOptions options_;
  int64_t block_rows_;
  std::vector<double> frequencies_;
  double rotation_scale_ = 1;
  float score_scale_ = 1;
  TensorView context_proj_, context_norm_, final_norm_, markov_w1_, markov_w2_, confidence_, confidence_bias_;
  std::vector<LayerWeights> layers_;

  AlignedBuffer memory_;
  uint16_t* taps_ = nullptr;                   // [pass_rows, taps * H] BF16 of the pass in progress
  std::vector<Rows> cache_;                    // a layer each: [context + block rows, kv_lora + rope]
  Rows context_taps_, context_h_, context_z_;  // [kAppendRows, ...]
  Rows x_, res_, u_, h_;                       // [block, H]
  Rows q_a_, q_, z_, attended_, y_;            // [block, ...]
  Rows gate_, up_;                             // [block, intermediate]
  Rows logits_, bias_, e_;                     // [block, vocab], [1, vocab], [1, rank]
  std::vector<TokenId> tokens_;                // of the context
  bool dropped_ = false;                       // beyond the limit, or broken
  bool broken_ = false;                        // a number was none
};

}  // namespace deltafin
