#include "draft/dspark_drafter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_types.h"

namespace deltafin {
namespace {

constexpr int64_t kAppendRows = 64;  // of context that are computed together
constexpr uint64_t kAlign = 64;

int64_t CacheRows(const DsparkOptions& options, int64_t block_rows) {
  return CeilDiv(options.context + block_rows, kMlaGrid) * kMlaGrid;
}

bool AllFinite(const ConstRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t i = 0; i < rows.width; ++i)
      if (!std::isfinite(rows.row(r)[i])) return false;
  return true;
}

}  // namespace

float DsparkDrafter::Rounded(float value) const {
  return options_.round_to_bf16 ? Bf16ToFloat(FloatToBf16(value)) : value;
}

void DsparkDrafter::Round(const Rows& rows) const {
  if (!options_.round_to_bf16) return;
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t i = 0; i < rows.width; ++i) rows.row(r)[i] = Bf16ToFloat(FloatToBf16(rows.row(r)[i]));
}

void DsparkDrafter::Linear(const TensorView& weight, const ConstRows& x, const Rows& out) {
  backend_.Linear({.weight = weight, .x = x, .out = out});
  Round(out);
}

// Rounded before the weight and after it, as it was trained. out may be x.
void DsparkDrafter::Norm(const TensorView& weight, const ConstRows& x, const Rows& out) const {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* in = x.row(r);
    float squares = 0;
    for (int64_t i = 0; i < x.width; ++i) squares += in[i] * in[i];
    const float factor = 1 / std::sqrt(squares / static_cast<float>(x.width) + config_.norm_eps);
    for (int64_t i = 0; i < x.width; ++i)
      out.row(r)[i] = Rounded(Rounded(in[i] * factor) * Bf16ToFloat(weight.bf16()[i]));
  }
}

WorkspaceLimits DsparkDrafter::Workspace(const DsparkConfig& c) {
  WorkspaceLimits limits;
  limits.max_rows = kAppendRows;
  limits.max_inner = std::max({c.hidden, c.tap_width(), c.intermediate, c.q_lora, c.kv_lora, c.heads * c.v_dim,
                               c.markov_rank, c.heads * (c.nope + c.rope)});
  limits.max_expert_inner = 1;
  limits.mla_heads = c.heads;
  limits.mla_latent_width = c.latent_width();
  return limits;
}

// Gives every view its place and returns the bytes used; with a null base it only counts.
uint64_t DsparkDrafter::Layout(std::byte* base) {
  const DsparkConfig& c = config_;
  uint64_t offset = 0;
  const auto take = [&](int64_t rows, int64_t width) {
    offset = AlignUp(offset, kAlign);
    const Rows taken(base == nullptr ? nullptr : reinterpret_cast<float*>(base + offset), rows, width);
    offset += static_cast<uint64_t>(rows * width) * sizeof(float);
    return taken;
  };
  const int64_t block = block_rows_;
  cache_.clear();
  for (int64_t l = 0; l < c.layers; ++l) cache_.push_back(take(CacheRows(options_, block), c.latent_width()));
  offset = AlignUp(offset, kAlign);
  taps_ = base == nullptr ? nullptr : reinterpret_cast<uint16_t*>(base + offset);
  offset += static_cast<uint64_t>(options_.pass_rows * c.tap_width()) * sizeof(uint16_t);
  context_taps_ = take(kAppendRows, c.tap_width());
  context_h_ = take(kAppendRows, c.hidden);
  context_z_ = take(kAppendRows, c.latent_width());
  for (Rows* rows : {&x_, &res_, &u_, &h_, &y_}) *rows = take(block, c.hidden);
  q_a_ = take(block, c.q_lora);
  q_ = take(block, c.heads * (c.nope + c.rope));
  z_ = take(block, c.latent_width());
  attended_ = take(block, c.heads * c.v_dim);
  gate_ = take(block, c.intermediate);
  up_ = take(block, c.intermediate);
  logits_ = take(block, c.vocab);
  bias_ = take(1, c.vocab);
  e_ = take(1, c.markov_rank);
  return offset;
}

uint64_t DsparkDrafter::Bytes(const DsparkConfig& c, const DsparkOptions& options) {
  const int64_t block = kBlockRows;
  const int64_t floats = c.layers * CacheRows(options, block) * c.latent_width() +
                         CeilDiv(options.pass_rows * c.tap_width(), 2) +
                         kAppendRows * (c.tap_width() + c.hidden + c.latent_width()) +
                         block * (5 * c.hidden + c.q_lora + c.heads * (c.nope + c.rope) + c.latent_width() +
                                  c.heads * c.v_dim + 2 * c.intermediate + c.vocab) +
                         c.vocab + c.markov_rank;
  const auto pieces = static_cast<uint64_t>(c.layers) + 20;  // each begins on a cache line
  return static_cast<uint64_t>(floats) * sizeof(float) + pieces * kAlign +
         static_cast<uint64_t>(options.context) * sizeof(TokenId);
}

DsparkDrafter::DsparkDrafter(const DsparkWeights& weights, Backend& backend, DsparkTarget& target,
                             const DsparkOptions& options, int64_t block_rows)
    : config_(weights.config()),
      backend_(backend),
      target_(target),
      options_(options),
      block_rows_(block_rows),
      frequencies_(YarnFrequencies(config_.yarn)),
      rotation_scale_(YarnRotationScale(config_.yarn)),
      score_scale_(static_cast<float>(YarnScoreScale(config_.yarn))),
      context_proj_(weights.Get("context_proj.weight")),
      context_norm_(weights.Get("context_norm.weight")),
      final_norm_(weights.Get("final_norm.weight")),
      markov_w1_(weights.Get("markov_head.markov_w1.weight")),
      markov_w2_(weights.Get("markov_head.markov_w2.weight")),
      confidence_(weights.Get("confidence_head.proj.weight")),
      confidence_bias_(weights.Get("confidence_head.proj.bias")) {
  for (int64_t l = 0; l < config_.layers; ++l) {
    const auto get = [&](std::string_view name) { return weights.Layer(l, name); };
    layers_.push_back({get("input_layernorm"), get("post_attention_layernorm"), get("self_attn.q_a_proj"),
                       get("self_attn.q_a_layernorm"), get("self_attn.q_b_proj"), get("self_attn.kv_a_proj_with_mqa"),
                       get("self_attn.kv_a_layernorm"), get("self_attn.kv_b_proj"), get("self_attn.o_proj"),
                       get("mlp.gate_proj"), get("mlp.up_proj"), get("mlp.down_proj")});
  }
}

Result<std::unique_ptr<DsparkDrafter>> DsparkDrafter::Create(const DsparkWeights& weights, Backend& backend,
                                                             DsparkTarget& target, const DsparkOptions& options,
                                                             int64_t block_rows) {
  DFIN_CHECK(block_rows >= 2 && block_rows <= kMostDrafts, "blocks have 2 to kMostDrafts rows");
  std::unique_ptr<DsparkDrafter> drafter(new DsparkDrafter(weights, backend, target, options, block_rows));
  DFIN_TRY(drafter->memory_, AlignedBuffer::Create(drafter->Layout(nullptr), /*huge_pages=*/false));
  drafter->Layout(drafter->memory_.data());
  drafter->tokens_.reserve(static_cast<size_t>(options.context));
  return drafter;
}

void DsparkDrafter::OnLayer(int32_t layer, const ConstRows& sum) {
  const auto it = std::lower_bound(config_.taps.begin(), config_.taps.end(), layer);
  if (it == config_.taps.end() || *it != layer) return;
  DFIN_CHECK(sum.rows <= options_.pass_rows, "a pass with more rows than was said");
  const int64_t column = (it - config_.taps.begin()) * config_.hidden;
  for (int64_t r = 0; r < sum.rows; ++r) {
    uint16_t* out = taps_ + r * config_.tap_width() + column;
    for (int64_t i = 0; i < sum.width; ++i) out[i] = FloatToBf16(sum.row(r)[i]);
  }
}

void DsparkDrafter::OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) {
  const auto before = session_tokens.first(session_tokens.size() - static_cast<size_t>(rows));
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), before.begin(), before.end()).first;
  tokens_.erase(same, tokens_.end());
  if (before.empty()) dropped_ = broken_ = false;
  if (tokens_.size() != before.size()) return;  // begins later than the session: of no use until it begins anew
  if (static_cast<int64_t>(session_tokens.size()) > options_.context) {
    tokens_.clear();
    dropped_ = true;
  }
  if (dropped_) return;
  for (int64_t at = 0; at < rows && !cancel.cancelled(); at += kAppendRows) {
    const int64_t count = std::min(kAppendRows, rows - at);
    if (!Append(at, count, length())) {
      (void)Broken();  // Propose() says so
      return;
    }
    const std::span<const TokenId> appended = session_tokens.subspan(tokens_.size(), static_cast<size_t>(count));
    tokens_.insert(tokens_.end(), appended.begin(), appended.end());
  }
}

std::string_view DsparkDrafter::silence() const {
  if (broken_) return "a number was none";
  return dropped_ ? "the conversation is too long for it" : "it did not see the conversation from its beginning on";
}

// Nothing of the context is trusted any more.
Failure DsparkDrafter::Broken() {
  tokens_.clear();
  dropped_ = broken_ = true;
  return Fail(ErrorCode::kCorrupt,
              "dspark: a number is none: the weights are damaged, or the model's rows are: expected finite ones");
}

// A.6.
bool DsparkDrafter::Append(int64_t first_row, int64_t rows, int64_t first_position) {
  const Rows taps = context_taps_.Slice(0, rows), h = context_h_.Slice(0, rows), z = context_z_.Slice(0, rows);
  const uint16_t* from = taps_ + first_row * config_.tap_width();
  for (int64_t i = 0; i < rows * config_.tap_width(); ++i) taps.data[i] = Bf16ToFloat(from[i]);
  Linear(context_proj_, taps, h);
  Norm(context_norm_, h, h);
  for (size_t l = 0; l < layers_.size(); ++l) {
    Linear(layers_[l].kv_a, h, z);
    KeepLatents(layers_[l], z, first_position, cache_[l]);
    if (!AllFinite(cache_[l].Slice(first_position, rows))) return false;
  }
  return true;
}

void DsparkDrafter::KeepLatents(const LayerWeights& w, const ConstRows& z, int64_t first_position, const Rows& cache) {
  const Rows kept = cache.Slice(first_position, z.rows);
  Norm(w.kv_a_norm, z.Columns(0, config_.kv_lora), kept.Columns(0, config_.kv_lora));
  const Rows keys = kept.Columns(config_.kv_lora, config_.rope);
  for (int64_t r = 0; r < z.rows; ++r) {
    std::copy_n(z.row(r) + config_.kv_lora, config_.rope, keys.row(r));
    RotatePairs(frequencies_, rotation_scale_, first_position + r, keys.row(r));
  }
  Round(keys);
}

// u_ -> y_. Every row of the block sees the context and the whole block, so each is asked as if it were the last.
void DsparkDrafter::Attend(const LayerWeights& w, const Rows& cache, int64_t length) {
  const DsparkConfig& c = config_;
  Linear(w.q_a, u_, q_a_);
  Norm(w.q_a_norm, q_a_, q_a_);
  Linear(w.q_b, q_a_, q_);
  Linear(w.kv_a, u_, z_);
  KeepLatents(w, z_, length, cache);
  for (int64_t r = 0; r < block_rows_; ++r) {
    float* q = q_.row(r);
    for (int64_t head = 0; head < c.heads; ++head) {
      float* rope = q + head * (c.nope + c.rope) + c.nope;
      RotatePairs(frequencies_, rotation_scale_, length + r, rope);
      for (int64_t i = 0; i < c.rope; ++i) rope[i] = Rounded(rope[i]);
    }
    for (int64_t i = 0; i < q_.width; ++i) q[i] *= score_scale_;
  }
  const float* page = cache.data;
  for (int64_t r = 0; r < block_rows_; ++r)
    backend_.MlaAttend({.q = q_.Slice(r, 1),
                        .kv_b_proj = w.kv_b,
                        .cache = {.pages = &page,
                                  .page_rows = cache.rows,
                                  .offset = 0,
                                  .rows = length + block_rows_,
                                  .width = cache.width,
                                  .stride = cache.stride},
                        .first_position = length + block_rows_ - 1,
                        .heads = c.heads,
                        .nope = c.nope,
                        .rope = c.rope,
                        .v_dim = c.v_dim,
                        .latent = c.kv_lora,
                        .out = attended_.Slice(r, 1)});
  Round(attended_);
  Linear(w.o, attended_, y_);
}

// A.7, steps 2 and 3: x_ holds the embeddings; h_ afterwards what the heads read.
void DsparkDrafter::RunBlock(int64_t length) {
  const auto add = [this](const Rows& to, const Rows& what) {
    backend_.Add({.x = what, .out = to});
    Round(to);
  };
  for (int64_t r = 0; r < block_rows_; ++r)
    std::memset(res_.row(r), 0, static_cast<size_t>(res_.width) * sizeof(float));
  for (size_t l = 0; l < layers_.size(); ++l) {
    const LayerWeights& w = layers_[l];
    add(res_, x_);
    Norm(w.input_norm, res_, u_);
    Attend(w, cache_[l], length);
    add(res_, y_);
    Norm(w.post_norm, res_, u_);
    Linear(w.gate, u_, gate_);
    Linear(w.up, u_, up_);
    for (int64_t r = 0; r < block_rows_; ++r)
      for (int64_t i = 0; i < gate_.width; ++i) {
        const float gate = gate_.row(r)[i];
        gate_.row(r)[i] = Rounded(Rounded(gate / (1 + std::exp(-gate))) * up_.row(r)[i]);
      }
    Linear(w.down, gate_, x_);
  }
  add(res_, x_);
  Norm(final_norm_, res_, h_);
}

TokenId DsparkDrafter::Likeliest(const float* logits) const {
  const int64_t usable = options_.usable_vocab == 0 ? config_.vocab : options_.usable_vocab;
  TokenId best = -1;
  for (TokenId id = 0; id < usable; ++id)
    if (id != config_.mask_token && (best < 0 || logits[id] > logits[best])) best = id;
  return best;
}

float DsparkDrafter::Confidence(const float* h, const float* e) const {
  const uint16_t* w = confidence_.bf16();
  float sum = Bf16ToFloat(confidence_bias_.bf16()[0]);
  for (int64_t i = 0; i < config_.hidden; ++i) sum += Bf16ToFloat(w[i]) * h[i];
  for (int64_t i = 0; i < config_.markov_rank; ++i) sum += Bf16ToFloat(w[config_.hidden + i]) * e[i];
  return 1 / (1 + std::exp(-Rounded(sum)));
}

// A.7, step 4.
Result<Proposal> DsparkDrafter::PickTokens(TokenId anchor, std::span<TokenId> out) {
  const auto count = static_cast<int64_t>(out.size());
  const Rows logits = logits_.Slice(0, count);
  DFIN_TRY_VOID(target_.Head(h_.Slice(0, count), logits));
  Proposal proposal;
  TokenId before = anchor;
  for (int64_t k = 0; k < count; ++k) {
    const uint16_t* embedding = markov_w1_.bf16() + before * config_.markov_rank;
    for (int64_t i = 0; i < config_.markov_rank; ++i) e_.data[i] = Bf16ToFloat(embedding[i]);
    Linear(markov_w2_, e_, bias_);
    backend_.Add({.x = bias_, .out = logits.Slice(k, 1)});
    const float belief = Confidence(h_.row(k), e_.data);
    if (!AllFinite(logits.Slice(k, 1)) || !std::isfinite(belief)) return Broken();
    before = Likeliest(logits.row(k));
    out[static_cast<size_t>(k)] = before;
    proposal.belief[static_cast<size_t>(k)] = belief;
  }
  proposal.count = count;
  return proposal;
}

Result<Proposal> DsparkDrafter::Propose(std::span<const TokenId> history, std::span<TokenId> out) {
  if (history.empty() || out.empty()) return Proposal{};
  if (broken_) return Broken();
  const auto context = history.first(history.size() - 1);
  if (tokens_.size() != context.size() || !std::equal(tokens_.begin(), tokens_.end(), context.begin()))
    return Proposal{};
  const TokenId ids[] = {history.back(), config_.mask_token};
  DFIN_TRY_VOID(target_.Embed(ids, x_.Slice(0, 2)));
  for (int64_t r = 2; r < block_rows_; ++r) std::copy_n(x_.row(1), x_.width, x_.row(r));
  Round(x_);
  RunBlock(length());
  return PickTokens(history.back(), out.first(std::min(out.size(), static_cast<size_t>(block_rows_))));
}

}  // namespace deltafin
