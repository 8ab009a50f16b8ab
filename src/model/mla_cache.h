// MlaCache: the MLA latents of one sequence, [positions, latent + rope] f32 for every MLA layer, in pages that are
// taken as the sequence grows. Or in BF16, for half the memory: then results are other ones (--kv-dtype).
//
// A page (model/mla_page_pool.h) holds kPagePositions positions of all MLA layers, [layers, kPagePositions, width]: 7.1
// MB at K3's sizes. Rows never move. A copy of the cache shares its pages; they are counted references and go when the
// last copy goes. Only the last page of a prefix can be half full: the first of its sharers that appends goes on in
// place, behind what the others see; every other one copies that page first. Thread rule: engine thread only, for all
// caches that share a pool. Errors: kOutOfMemory from Prepare(), which changes nothing that a reader sees.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/mla_page_pool.h"
#include "tensor/tensor.h"

namespace deltafin {

class MlaCache {
 public:
  // A multiple of the grid on which attention is merged (backend/op_args.h).
  static constexpr int64_t kPagePositions = 128;

  MlaCache() = default;
  // `capacity`: positions for which the list of pages has room from the start. `pool`: of pages of PageBytes(); null:
  // one of its own.
  MlaCache(int64_t layers, int64_t width, int64_t capacity, DType dtype = DType::kF32,
           std::shared_ptr<MlaPagePool> pool = nullptr);
  static uint64_t PageBytes(int64_t layers, int64_t width, DType dtype);

  DType dtype() const { return dtype_; }
  int64_t layers() const { return layers_; }
  int64_t width() const { return width_; }
  uint64_t page_bytes() const { return PageBytes(layers_, width_, dtype_); }
  const std::vector<MlaPage>& pages() const { return pages_; }

  // Makes rows [first, first + count) of every layer writable; rows before `first` stay.
  Status Prepare(int64_t first, int64_t count);
  // Of these rows of one layer as many as lie together from `first` on; prepared before.
  PackedRows Writable(int64_t layer, int64_t first, int64_t count) const;
  // Rows [0, count) of one layer. Valid until the cache changes or dies.
  PagedRows View(int64_t layer, int64_t count) const;
  // Lets go of the pages that lie wholly behind the first `count` positions.
  void Truncate(int64_t count);
  // The first `count` positions, sharing their pages; `capacity` as above.
  MlaCache Prefix(int64_t count, int64_t capacity) const;

 private:
  Status Append();
  Status CopyPage(size_t page, int64_t rows);

  int64_t layers_ = 0, width_ = 0;
  DType dtype_ = DType::kF32;
  std::shared_ptr<MlaPagePool> pool_;
  std::vector<MlaPage> pages_;
  // Of each page, for views; one of the two is used.
  std::vector<const float*> f32_;
  std::vector<const uint16_t*> bf16_;
};

}  // namespace deltafin
