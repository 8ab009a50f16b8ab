#include "model/mla_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace deltafin {

MlaCache::MlaCache(int64_t layers, int64_t width, int64_t capacity, DType dtype, std::shared_ptr<MlaPagePool> pool)
    : layers_(layers), width_(width), dtype_(dtype), pool_(std::move(pool)) {
  DFIN_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "latents are F32 or BF16");
  if (pool_ == nullptr) pool_ = MlaPagePool::Create(page_bytes());
  DFIN_CHECK(pool_->page_bytes() == page_bytes(), "a pool of other pages");
  const auto pages = static_cast<size_t>(CeilDiv(capacity, kPagePositions));
  pages_.reserve(pages);
  if (dtype == DType::kF32)
    f32_.reserve(pages);
  else
    bf16_.reserve(pages);
}

uint64_t MlaCache::PageBytes(int64_t layers, int64_t width, DType dtype) {
  return static_cast<uint64_t>(layers * kPagePositions * width * ByteSize(dtype));
}

Status MlaCache::Append() {
  DFIN_TRY(MlaPage page, pool_->Take());
  if (dtype_ == DType::kF32)
    f32_.push_back(reinterpret_cast<const float*>(page.data()));
  else
    bf16_.push_back(reinterpret_cast<const uint16_t*>(page.data()));
  pages_.push_back(std::move(page));
  return {};
}

Status MlaCache::CopyPage(size_t page, int64_t rows) {
  DFIN_TRY(MlaPage copy, pool_->Take());
  const int64_t row_bytes = width_ * ByteSize(dtype_);
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const int64_t at = layer * kPagePositions * row_bytes;
    std::memcpy(copy.data() + at, pages_[page].data() + at, static_cast<size_t>(rows * row_bytes));
  }
  if (dtype_ == DType::kF32)
    f32_[page] = reinterpret_cast<const float*>(copy.data());
  else
    bf16_[page] = reinterpret_cast<const uint16_t*>(copy.data());
  pages_[page] = std::move(copy);
  return {};
}

Status MlaCache::Prepare(int64_t first, int64_t count) {
  DFIN_CHECK(first >= 0 && first <= static_cast<int64_t>(pages_.size()) * kPagePositions, "positions have no gaps");
  for (int64_t at = first; at < first + count;) {
    const auto page = static_cast<size_t>(at / kPagePositions);
    const int64_t row = at % kPagePositions;
    const int64_t rows = std::min(kPagePositions - row, first + count - at);
    if (page == pages_.size()) DFIN_TRY_VOID(Append());
    if (pages_[page].shared() && pages_[page].filled() != row) DFIN_TRY_VOID(CopyPage(page, row));
    pages_[page].set_filled(row + rows);
    at += rows;
  }
  return {};
}

PackedRows MlaCache::Writable(int64_t layer, int64_t first, int64_t count) const {
  const auto page = static_cast<size_t>(first / kPagePositions);
  const int64_t row = first % kPagePositions;
  const int64_t rows = std::min(count, kPagePositions - row);
  DFIN_CHECK(layer >= 0 && layer < layers_ && page < pages_.size() && row + rows <= pages_[page].filled(),
             "outside the MLA cache");
  const int64_t at = (layer * kPagePositions + row) * width_;
  std::byte* data = pages_[page].data() + at * ByteSize(dtype_);
  if (dtype_ == DType::kF32) return {reinterpret_cast<float*>(data), nullptr, rows, width_};
  return {nullptr, reinterpret_cast<uint16_t*>(data), rows, width_};
}

PagedRows MlaCache::View(int64_t layer, int64_t count) const {
  DFIN_CHECK(layer >= 0 && layer < layers_ && count <= static_cast<int64_t>(pages_.size()) * kPagePositions,
             "outside the MLA cache");
  const bool is_f32 = dtype_ == DType::kF32;
  return {.pages = is_f32 ? f32_.data() : nullptr,
          .page_rows = kPagePositions,
          .offset = layer * kPagePositions * width_,
          .rows = count,
          .width = width_,
          .stride = width_,
          .bf16_pages = is_f32 ? nullptr : bf16_.data()};
}

void MlaCache::Truncate(int64_t count) {
  const auto keep = static_cast<size_t>(CeilDiv(count, kPagePositions));
  while (pages_.size() > keep) {
    pages_.pop_back();
    if (dtype_ == DType::kF32)
      f32_.pop_back();
    else
      bf16_.pop_back();
  }
}

MlaCache MlaCache::Prefix(int64_t count, int64_t capacity) const {
  MlaCache prefix(layers_, width_, capacity, dtype_, pool_);
  const auto shared = static_cast<std::ptrdiff_t>(CeilDiv(count, kPagePositions));
  DFIN_CHECK(shared <= static_cast<std::ptrdiff_t>(pages_.size()), "outside the MLA cache");
  prefix.pages_.assign(pages_.begin(), pages_.begin() + shared);
  if (dtype_ == DType::kF32)
    prefix.f32_.assign(f32_.begin(), f32_.begin() + shared);
  else
    prefix.bf16_.assign(bf16_.begin(), bf16_.begin() + shared);
  return prefix;
}

}  // namespace deltafin
