#include "model/activations.h"

#include <algorithm>

namespace deltafin {
namespace {

constexpr uint64_t kAlign = 64;  // a cache line, a 512-bit vector

// Hands out aligned pieces of a block; with a null base it only counts.
class Carver {
 public:
  Carver(std::byte* base, uint64_t offset) : base_(base), offset_(offset) {}

  template <typename T>
  T* Take(int64_t count) {
    const uint64_t at = AlignUp(offset_, kAlign);
    offset_ = at + static_cast<uint64_t>(count) * sizeof(T);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  Rows TakeRows(int64_t rows, int64_t width) { return {Take<float>(rows * width), rows, width}; }
  // Room for so many values, of which [rows, width] are used.
  Rows TakeRows(int64_t values, int64_t rows, int64_t width) { return {Take<float>(values), rows, width}; }
  uint64_t offset() const { return offset_; }

 private:
  std::byte* base_;
  uint64_t offset_;
};

int64_t BlockCount(const ModelSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.opens_block; });
}

// How many of `heads` heads a step of `rows` rows holds at a time.
int64_t HeadsAtOnce(int64_t heads, int64_t rows) {
  return std::clamp<int64_t>(heads * Activations::kRowsAtOnce / rows, 1, heads);
}

// Values for so many heads: never fewer for more rows, so that a buffer for the longest step is large enough for all.
int64_t HeadValues(int64_t heads, int64_t rows, int64_t width) {
  return std::max(std::min(rows, Activations::kRowsAtOnce) * heads, rows) * width;
}

}  // namespace

// Gives every view its place for `rows` rows and returns the bytes used. The arithmetic is the same with and without
// memory.
uint64_t Activations::Layout(const ModelSpec& s, int64_t rows, std::byte* base) {
  Carver common(base, 0);
  for (Rows& buffer : stack_) buffer = common.TakeRows(rows, s.hidden_size);
  x = common.TakeRows(rows, s.hidden_size);
  y = common.TakeRows(rows, s.hidden_size);

  const int64_t few = std::min(rows, kLookaheadRows);
  lookahead.x = common.TakeRows(few, s.hidden_size);
  lookahead.scores = common.TakeRows(few, s.num_experts);
  const int64_t few_routes = few * s.num_experts_per_token;
  lookahead.expert_ids = {common.Take<int32_t>(few_routes), static_cast<size_t>(few_routes)};
  lookahead.expert_weights = {common.Take<float>(few_routes), static_cast<size_t>(few_routes)};

  Carver c_kda(base, common.offset());
  kda.heads = HeadsAtOnce(s.kda_heads, rows);
  const int64_t kda_values = HeadValues(s.kda_heads, rows, s.kda_head_dim);
  for (Rows* r : {&kda.q_proj, &kda.k_proj, &kda.v_proj, &kda.q, &kda.k, &kda.v, &kda.decay, &kda.gate})
    *r = c_kda.TakeRows(kda_values, rows, kda.heads * s.kda_head_dim);
  kda.out = c_kda.TakeRows(rows, s.kda_width());
  kda.f_a = c_kda.TakeRows(rows, s.kda_head_dim);
  kda.beta = c_kda.TakeRows(rows, s.kda_heads);

  Carver c_mla(base, common.offset());
  mla.q_a = c_mla.TakeRows(rows, s.q_lora_rank);
  mla.heads = HeadsAtOnce(s.mla_heads, rows);
  const int64_t query = s.qk_nope_head_dim + s.qk_rope_head_dim;
  mla.q = c_mla.TakeRows(HeadValues(s.mla_heads, rows, query), rows, mla.heads * query);
  mla.kv_a = c_mla.TakeRows(rows, s.latent_width());
  mla.gate = c_mla.TakeRows(HeadValues(s.mla_heads, rows, s.v_head_dim), rows, mla.heads * s.v_head_dim);
  mla.out = c_mla.TakeRows(rows, s.mla_out_width());

  const int64_t at_once = std::min(rows, kRowsAtOnce);
  Carver c_dense(base, common.offset());
  dense.gate = c_dense.TakeRows(at_once, s.intermediate_size);
  dense.up = c_dense.TakeRows(at_once, s.intermediate_size);

  Carver c_moe(base, common.offset());
  const int64_t routes = rows * s.num_experts_per_token;
  moe.scores = c_moe.TakeRows(rows, s.num_experts);
  moe.latent = c_moe.TakeRows(rows, s.routed_expert_hidden_size);
  moe.shared_gate = c_moe.TakeRows(at_once, s.shared_width());
  moe.shared_up = c_moe.TakeRows(at_once, s.shared_width());
  const int64_t partials = std::max(at_once * s.num_experts_per_token, rows);
  moe.partial = c_moe.TakeRows(partials * s.routed_expert_hidden_size, rows <= kRowsAtOnce ? routes : rows,
                               s.routed_expert_hidden_size);
  moe.mixed = c_moe.TakeRows(rows, s.routed_expert_hidden_size);
  moe.up = c_moe.TakeRows(rows, s.hidden_size);
  moe.expert_ids = {c_moe.Take<int32_t>(routes), static_cast<size_t>(routes)};
  moe.expert_weights = {c_moe.Take<float>(routes), static_cast<size_t>(routes)};

  return std::max({c_kda.offset(), c_mla.offset(), c_dense.offset(), c_moe.offset()});
}

uint64_t Activations::Bytes(const ModelSpec& spec, int64_t max_rows) {
  Activations counting;
  counting.stack_.resize(static_cast<size_t>(BlockCount(spec) + 1));
  return counting.Layout(spec, max_rows, nullptr);
}

Result<Activations> Activations::Create(const ModelSpec& spec, int64_t max_rows) {
  Activations a;
  a.spec_ = spec;
  a.max_rows_ = max_rows;
  a.stack_.resize(static_cast<size_t>(BlockCount(spec) + 1));
  a.blocks_.resize(a.stack_.size());
  DFIN_TRY(a.memory_, AlignedBuffer::Create(Bytes(spec, max_rows)));
  return a;
}

void Activations::BeginStep(int64_t rows) {
  DFIN_CHECK(rows >= 1 && rows <= max_rows_, "step has more rows than the activations were made for");
  Layout(spec_, rows, memory_.data());
  depth_ = 0;
  prefix_sum = stack_[0];
}

void Activations::PushBlock() {
  blocks_[static_cast<size_t>(depth_)] = prefix_sum;
  ++depth_;
  prefix_sum = stack_[static_cast<size_t>(depth_)];
}

}  // namespace deltafin
