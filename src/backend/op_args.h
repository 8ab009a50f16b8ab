// op_args.h: the argument of every operation a backend must compute, one struct each, with shapes.
//
// R is the number of rows (tokens) of the call, from 1 to thousands. Every operation is row-invariant: the bits of one
// output row depend on that row's inputs only, never on R, on the other rows, or on the thread count (ARCHITECTURE section
// 0, decision 1). So each dot product runs over its inner dimension in one order that is fixed for a backend and
// instruction set. Activations are float32, weights BF16, F32 or MXFP4 as stored, or BF16 in its 12-bit form (BF12), which
// gives the same bits as BF16. Views are valid for the call only.
// Inputs and outputs must not overlap unless said.
// Formulas: K3 technical report section 2; names of weights are the checkpoint's.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "tensor/mxfp4.h"
#include "tensor/tensor.h"

namespace deltafin {

// out[r] = table[ids[r]].
struct EmbedArgs {
  TensorView table;              // [vocab, H] BF16, or [R, H] when ids are 0..R-1 (rows gathered by the caller)
  std::span<const TokenId> ids;  // [R], each inside the table
  Rows out;                      // [R, H]
};

// out = x * 1/sqrt(mean(x^2) + eps) * weight. out may be x.
struct RmsNormArgs {
  ConstRows x;        // [R, width]
  TensorView weight;  // [width] BF16 or F32
  float eps = 0;
  Rows out;           // [R, width]
};

// out = x W^T.
struct LinearArgs {
  TensorView weight;  // [N, K] BF16, BF12 or F32
  ConstRows x;        // [R, K]
  Rows out;           // [R, N]
};

// Several matrices applied to the same input: one fork-join, one pass over x.
struct LinearGroupArgs {
  // Of each matrix as many outputs as `out` is wide, from `first` on.
  struct Part {
    TensorView weight;  // [N_i, K] BF16, BF12 or F32
    Rows out;           // [R, up to N_i]
    int64_t first = 0;
  };
  ConstRows x;  // [R, K]
  std::span<const Part> parts;
};

// Causal depthwise convolution with SiLU over one sequence: with s = tail followed by x,
// out[t, c] = silu(sum_i s[t + i, c] * kernel[c, i]), i ascending; next_tail = the last taps - 1 rows of s.
struct ShortConvArgs {
  ConstRows x;        // [R, C]
  TensorView kernel;  // [C, taps] or [C, 1, taps] F32; the last tap multiplies the current row
  ConstRows tail;     // [taps - 1, C]; zero before the first token
  Rows next_tail;     // the same shape; may be the same memory
  Rows out;           // [R, C]
};

// Kimi Delta Attention, always as the recurrence, one sequence (section 2.1.1, Eq. 1-6). Per head, per row in order:
//   q' = q / sqrt(sum q^2 + 1e-6) * d^-0.5,  k' = k / sqrt(sum k^2 + 1e-6)
//   log_alpha = lower_bound * sigmoid(exp(a_log[head]) * (raw_decay + dt_bias)),  b = sigmoid(raw_beta)
//   S = diag(exp(log_alpha)) S;  S = S + (b k') (v - S^T k')^T;  out = S^T q'
struct KdaArgs {
  ConstRows q, k, v;    // [R, heads * d] after ShortConv, index head * d + channel
  ConstRows raw_decay;  // [R, heads * d] = f_b_proj(f_a_proj(x))
  ConstRows raw_beta;   // [R, heads] = b_proj(x)
  TensorView a_log;     // F32, at least `heads` entries; only the first `heads` are read (shards pad it with zeros)
  TensorView dt_bias;   // [heads * d] F32
  float lower_bound = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;  // d
  // [heads, d (key), d (value)]: S before the first row, and after the last. They may be the same memory.
  const float* before = nullptr;
  float* after = nullptr;
  Rows out;  // [R, heads * d]
};

// Per head: out = rms_norm(x_head) * weight * sigmoid(gate_head). out may be x.
struct GatedHeadNormArgs {
  ConstRows x;        // [R, heads * d]
  ConstRows gate;     // [R, heads * d], before the sigmoid
  TensorView weight;  // [d] F32 or BF16, shared by the heads
  float eps = 0;
  int64_t heads = 0;
  Rows out;           // [R, heads * d]
};

// Multi-head latent attention, absorbed on the cached latent for every R, causal, one sequence (section 2.1.2, Eq. 7).
// With kv_b_proj split per head h into K_h [nope, latent] and V_h [v_dim, latent], for the row at position p:
//   ql = K_h^T q_nope;  score_j = (ql . latent_j + q_rope . rope_key_j) * (nope + rope)^-0.5 for j <= p
//   out_h = V_h (sum_j softmax(score)_j latent_j)
// Positions are taken in blocks on a grid fixed to absolute positions, each block's partial maximum, sum and mix merged in
// ascending order. Pages of the cache hold a multiple of kMlaGrid rows, so that no block lies in two of them.
inline constexpr int64_t kMlaGrid = 64;
struct MlaAttendArgs {
  ConstRows q;           // [R, heads * (nope + rope)], per head nope then rope
  TensorView kv_b_proj;  // [heads * (nope + v_dim), latent] BF16, per head nope key rows then v_dim value rows
  // [first_position + R, latent + rope]: normalised latent, then the shared rope key; BF16 values are widened
  PagedRows cache;
  int64_t first_position = 0;  // position of q's row 0; row r sees cache rows 0 .. first_position + r
  int64_t heads = 0;
  int64_t nope = 0, rope = 0, v_dim = 0, latent = 0;  // nope or rope may be 0
  Rows out;              // [R, heads * v_dim]
};

// x = x * sigmoid(gate), elementwise.
struct SigmoidGateArgs {
  Rows x;          // [R, width], in and out
  ConstRows gate;  // [R, width]
};

// AttnRes (section 2.2, Eq. 9-10): softmax over depth. Candidates c_0 .. c_n are the n stacked block residuals and, last,
// the running sum: score_i = sum_w c_i[w] * 1/sqrt(mean(c_i^2) + eps) * (norm[w] * proj[w]); out = sum_i softmax(score)_i c_i.
struct MixResidualsArgs {
  std::span<const ConstRows> blocks;  // n views [R, H], oldest first; at least one
  ConstRows prefix_sum;               // [R, H]
  TensorView proj;                    // [1, H] BF16
  TensorView norm;                    // [H] BF16
  float eps = 0;
  Rows out;                           // [R, H]
};

// Router (section 2.3, Eq. 11): s = sigmoid(x W^T) in float32; the top_k experts by s + bias (equal scores: lower index
// first), in descending order of that sum; weight = s / (sum of the chosen s + 1e-20) * scaling. The bias steers the choice only.
struct RouterArgs {
  ConstRows x;        // [R, H]
  TensorView weight;  // [experts, H] BF16 or BF12
  TensorView bias;    // [experts] F32
  int64_t top_k = 0;
  float scaling = 1;
  Rows scores;                     // [R, experts], scratch given by the caller; holds s afterwards
  std::span<int32_t> expert_ids;   // [R * top_k]
  std::span<float> expert_weights; // [R * top_k]
};

// SiTU-GLU (Eq. 12): out = beta * tanh(gate / beta) * sigmoid(gate) * linear_beta * tanh(up / linear_beta). out may be gate.
struct SituGluArgs {
  ConstRows gate, up;  // [R, width]
  float beta = 0, linear_beta = 0;
  Rows out;            // [R, width]
};

// One routed expert on the rows that chose it: out = (situ_glu(x w1^T, x w3^T)) w2^T.
struct ExpertMlpArgs {
  Mxfp4View w1, w3;  // [I, L]
  Mxfp4View w2;      // [L, I]
  float beta = 0, linear_beta = 0;
  // Rows of `x` to use and rows of `out` to write: out[out_rows[i]] = mlp(x[x_rows[i]]).
  ConstRows x;                        // [anything, L]
  std::span<const int32_t> x_rows;    // [m]
  Rows out;                           // [anything, L]
  std::span<const int32_t> out_rows;  // [m], all different
};

// Weighted sum of the routed experts of each row, in ascending expert index (Eq. 13), in float32, every product and sum
// rounded once: out[r] = sum over j in order[r] of weights[r, j] * partial[r * top_k + j].
struct CombineExpertsArgs {
  ConstRows partial;               // [R * top_k, L]
  std::span<const float> weights;  // [R * top_k]
  std::span<const int32_t> order;  // [R * top_k]: per row the slots 0..top_k-1, sorted by ascending expert index
  int64_t top_k = 0;
  Rows out;                        // [R, L]
};

// One expert's part of the same sums, for rows that come to it after all lower experts of theirs: with row = route / top_k,
// out[row] += weights[route] * partial[i], or out[row] = that for the first of a row's experts. The bits are CombineExperts'.
struct AddExpertArgs {
  ConstRows partial;                // [m, L]
  std::span<const int32_t> routes;  // [m] = row * top_k + slot, of different rows
  std::span<const float> weights;   // [R * top_k]
  std::span<const int32_t> order;   // [R * top_k], as above
  int64_t top_k = 0;
  Rows out;                         // [R, L], in and out
};

// out = x, in float32 or rounded to the nearest BF16 (ties to even).
struct StoreArgs {
  ConstRows x;     // [R, width]
  PackedRows out;  // [R, width]
};

// out = x, or out += x.
struct CopyArgs {
  ConstRows x;  // [R, width]
  Rows out;     // [R, width]
};
struct AddArgs {
  ConstRows x;  // [R, width]
  Rows out;     // [R, width], in and out
};

}  // namespace deltafin
