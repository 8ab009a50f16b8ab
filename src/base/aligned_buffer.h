// AlignedBuffer: one block of anonymous memory from mmap, aligned to 2 MiB and offered to the kernel for huge pages.
//
// Pages are zero and uncommitted until touched, so a large buffer costs what is used of it. Move-only; unmapped when it
// dies. Never grows. Measured on a virtio disk: direct reads into such memory ran at 2.7-3.5 GB/s where 4 KiB pages
// gave 1.0-1.5, at every queue depth, so every read destination lives in one. Thread rule: the object is
// thread-compatible; the memory is the owner's business.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace deltafin {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = size_t{2} << 20;

  // kOutOfMemory when the address space or commit limit refuses. `huge_pages` false keeps 4 KiB pages, for memory that
  // is large and only partly used (a context that may never fill).
  static Result<AlignedBuffer> Create(uint64_t bytes, bool huge_pages = true);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = static_cast<AlignedBuffer&&>(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer() { Free(); }

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  MutBytes span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  void Free() noexcept;

  std::byte* data_ = nullptr;  // aligned start, inside [base_, base_ + mapped_)
  uint64_t size_ = 0;
  void* base_ = nullptr;
  uint64_t mapped_ = 0;
};

}  // namespace deltafin
