#include "draft/qwen_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_types.h"

namespace deltafin {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr uint64_t kAlign = 64;

int64_t PageRows(const QwenModelOptions& options) { return CeilDiv(options.capacity, kMlaGrid) * kMlaGrid; }

uint64_t CacheBytes(const QwenConfig& c, const QwenModelOptions& options) {
  return static_cast<uint64_t>(PageRows(options) * 2 * c.head_dim) * (options.bf16_cache ? 2 : 4);
}

}  // namespace

WorkspaceLimits QwenModel::Workspace(const QwenConfig& c) {
  WorkspaceLimits limits;
  limits.max_rows = kRowsAtOnce;
  limits.max_inner = std::max({c.hidden, c.heads * c.head_dim, c.intermediate});
  limits.max_expert_inner = 1;
  limits.mla_heads = c.group();
  limits.mla_latent_width = 2 * c.head_dim;
  return limits;
}

// Gives every view its place and returns the bytes used; with a null base it only counts.
uint64_t QwenModel::Layout(std::byte* base) {
  const QwenConfig& c = config_;
  uint64_t offset = 0;
  const auto take_bytes = [&](uint64_t bytes) {
    offset = AlignUp(offset, kAlign);
    std::byte* taken = base == nullptr ? nullptr : base + offset;
    offset += bytes;
    return taken;
  };
  const auto take = [&](int64_t rows, int64_t width) {
    return Rows(reinterpret_cast<float*>(take_bytes(static_cast<uint64_t>(rows * width) * sizeof(float))), rows, width);
  };
  cache_.clear();
  for (int64_t i = 0; i < c.layers * c.kv_heads; ++i) cache_.push_back(take_bytes(CacheBytes(c, options_)));
  identity_ = reinterpret_cast<uint16_t*>(
      take_bytes(static_cast<uint64_t>(c.group() * c.head_dim * c.head_dim) * sizeof(uint16_t)));
  for (Rows* rows : {&x_, &n_, &y_}) *rows = take(kRowsAtOnce, c.hidden);
  for (Rows* rows : {&q_, &attended_}) *rows = take(kRowsAtOnce, c.heads * c.head_dim);
  for (Rows* rows : {&k_, &v_}) *rows = take(kRowsAtOnce, c.kv_heads * c.head_dim);
  joined_ = take(kRowsAtOnce, 2 * c.head_dim);
  for (Rows* rows : {&gate_, &up_}) *rows = take(kRowsAtOnce, c.intermediate);
  for (Rows* rows : {&cosine_, &sine_}) *rows = take(kRowsAtOnce, c.head_dim / 2);
  logits_ = take(1, c.vocab);
  return offset;
}

uint64_t QwenModel::Bytes(const QwenConfig& c, const QwenModelOptions& options) {
  const auto caches = static_cast<uint64_t>(c.layers * c.kv_heads);
  const int64_t floats = kRowsAtOnce * (3 * c.hidden + 2 * c.heads * c.head_dim + 2 * c.kv_heads * c.head_dim +
                                        3 * c.head_dim + 2 * c.intermediate) +
                         c.vocab;
  return caches * (CacheBytes(c, options) + kAlign) + static_cast<uint64_t>(floats) * sizeof(float) +
         static_cast<uint64_t>(c.group() * c.head_dim * c.head_dim) * sizeof(uint16_t) + 20 * kAlign;
}

QwenModel::QwenModel(const QwenConfig& config, const DraftTensors& weights, Backend& backend,
                     const QwenModelOptions& options)
    : config_(config),
      backend_(backend),
      options_(options),
      embedding_(weights.Get(kQwenEmbedding)),
      final_norm_(weights.Get("model.norm.weight")),
      page_rows_(PageRows(options)) {
  for (int64_t l = 0; l < config_.layers; ++l) {
    const auto get = [&](const char* name) { return weights.Get(Cat("model.layers.", l, ".", name, ".weight")); };
    layers_.push_back({get("input_layernorm"), get("post_attention_layernorm"), get("self_attn.q_proj"),
                       get("self_attn.k_proj"), get("self_attn.v_proj"), get("self_attn.o_proj"),
                       get("self_attn.q_norm"), get("self_attn.k_norm"), get("mlp.gate_proj"), get("mlp.up_proj"),
                       get("mlp.down_proj")});
  }
  const auto width = static_cast<double>(config_.head_dim);
  for (int64_t i = 0; i < config_.head_dim / 2; ++i)
    frequencies_.push_back(std::pow(config_.rope_theta, -2 * static_cast<double>(i) / width));
}

Result<std::unique_ptr<QwenModel>> QwenModel::Create(const QwenConfig& config, const DraftTensors& weights,
                                                     Backend& backend, const QwenModelOptions& options) {
  DFIN_CHECK(options.capacity >= 1, "room for an id");
  std::unique_ptr<QwenModel> model(new QwenModel(config, weights, backend, options));
  DFIN_TRY(model->memory_, AlignedBuffer::Create(model->Layout(nullptr), /*huge_pages=*/false));
  model->Layout(model->memory_.data());
  const int64_t d = config.head_dim;
  for (int64_t r = 0; r < config.group() * d; ++r) model->identity_[r * d + r % d] = FloatToBf16(1);
  return model;
}

void QwenModel::Truncate(int64_t length) {
  DFIN_CHECK(length >= 0 && length <= length_, "only what was read can be forgotten");
  length_ = length;
}

void QwenModel::Append(std::span<const TokenId> ids) {
  DFIN_CHECK(!ids.empty() && length_ + static_cast<int64_t>(ids.size()) <= options_.capacity, "room for the ids");
  while (!ids.empty()) {
    const auto rows = std::min(static_cast<size_t>(kRowsAtOnce), ids.size());
    AppendRows(ids.first(rows), rows == ids.size());
    ids = ids.subspan(rows);
  }
}

void QwenModel::AppendRows(std::span<const TokenId> ids, bool last) {
  const auto rows = static_cast<int64_t>(ids.size());
  const Rows x = x_.Slice(0, rows), n = n_.Slice(0, rows);
  backend_.Embed({.table = embedding_, .ids = ids, .out = x});
  SetAngles(rows);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    Norm(layer.input_norm, x, n);
    Attend(layer, l, rows);
    Norm(layer.post_norm, x, n);
    Mlp(layer, rows);
  }
  length_ += rows;
  if (!last) return;
  const Rows end = n_.Slice(rows - 1, 1);
  Norm(final_norm_, x_.Slice(rows - 1, 1), end);
  backend_.Linear({.weight = embedding_, .x = end, .out = logits_});
}

void QwenModel::SetAngles(int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = static_cast<double>(length_ + r) * frequencies_[i];
      cosine_.row(r)[i] = static_cast<float>(std::cos(angle));
      sine_.row(r)[i] = static_cast<float>(std::sin(angle));
    }
}

// Element i of each of `count` heads in a row is turned with element i + head_dim / 2.
void QwenModel::Rotate(const Rows& heads, int64_t rows, int64_t count) const {
  const int64_t half = config_.head_dim / 2;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t head = 0; head < count; ++head) {
      float* a = heads.row(r) + head * config_.head_dim;
      float* b = a + half;
      for (int64_t i = 0; i < half; ++i) {
        const float first = a[i], second = b[i], c = cosine_.row(r)[i], s = sine_.row(r)[i];
        a[i] = first * c - second * s;
        b[i] = second * c + first * s;
      }
    }
}

PackedRows QwenModel::CacheRows(size_t layer, int64_t head, int64_t first, int64_t rows) const {
  const int64_t width = 2 * config_.head_dim;
  std::byte* at = cache_[layer * static_cast<size_t>(config_.kv_heads) + static_cast<size_t>(head)];
  PackedRows out{.rows = rows, .width = width};
  if (options_.bf16_cache)
    out.bf16 = reinterpret_cast<uint16_t*>(at) + first * width;
  else
    out.f32 = reinterpret_cast<float*>(at) + first * width;
  return out;
}

// n_ -> added to x_.
void QwenModel::Attend(const Layer& layer, size_t number, int64_t rows) {
  const QwenConfig& c = config_;
  const int64_t d = c.head_dim;
  const Rows q = q_.Slice(0, rows), k = k_.Slice(0, rows), v = v_.Slice(0, rows), attended = attended_.Slice(0, rows);
  const LinearGroupArgs::Part parts[] = {{layer.q, q}, {layer.k, k}, {layer.v, v}};
  backend_.LinearGroup({.x = n_.Slice(0, rows), .parts = parts});
  const Rows q_heads(q.data, rows * c.heads, d), k_heads(k.data, rows * c.kv_heads, d);
  Norm(layer.q_norm, q_heads, q_heads);
  Norm(layer.k_norm, k_heads, k_heads);
  Rotate(q, rows, c.heads);
  Rotate(k, rows, c.kv_heads);
  for (int64_t head = 0; head < c.kv_heads; ++head) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(v.row(r) + head * d, d, joined_.row(r));
      std::copy_n(k.row(r) + head * d, d, joined_.row(r) + d);
    }
    backend_.Store({.x = joined_.Slice(0, rows), .out = CacheRows(number, head, length_, rows)});
    const PackedRows all = CacheRows(number, head, 0, length_ + rows);
    const float* page = all.f32;
    const uint16_t* bf16_page = all.bf16;
    backend_.MlaAttend({.q = q.Columns(head * c.group() * d, c.group() * d),
                        .kv_b_proj = {reinterpret_cast<const std::byte*>(identity_), DType::kBF16, {c.group() * d, d}},
                        .cache = {.pages = options_.bf16_cache ? nullptr : &page,
                                  .page_rows = page_rows_,
                                  .offset = 0,
                                  .rows = all.rows,
                                  .width = all.width,
                                  .stride = all.width,
                                  .bf16_pages = options_.bf16_cache ? &bf16_page : nullptr},
                        .first_position = length_,
                        .heads = c.group(),
                        .nope = 0,
                        .rope = d,
                        .v_dim = d,
                        .latent = d,
                        .out = attended.Columns(head * c.group() * d, c.group() * d)});
  }
  const Rows y = y_.Slice(0, rows);
  backend_.Linear({.weight = layer.o, .x = attended, .out = y});
  backend_.Add({.x = y, .out = x_.Slice(0, rows)});
}

// n_ -> added to x_.
void QwenModel::Mlp(const Layer& layer, int64_t rows) {
  const Rows gate = gate_.Slice(0, rows), up = up_.Slice(0, rows), y = y_.Slice(0, rows);
  const LinearGroupArgs::Part parts[] = {{layer.gate, gate}, {layer.up, up}};
  backend_.LinearGroup({.x = n_.Slice(0, rows), .parts = parts});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < gate.width; ++i) {
      const float g = gate.row(r)[i];
      gate.row(r)[i] = g / (1 + std::exp(-g)) * up.row(r)[i];
    }
  backend_.Linear({.weight = layer.down, .x = gate, .out = y});
  backend_.Add({.x = y, .out = x_.Slice(0, rows)});
}

}  // namespace deltafin
