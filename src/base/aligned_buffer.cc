#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/units.h"

namespace deltafin {

Result<AlignedBuffer> AlignedBuffer::Create(uint64_t bytes, bool huge_pages) {
  AlignedBuffer buffer;
  const uint64_t mapped = AlignUp(bytes == 0 ? 1 : bytes, 4096) + kAlignment;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return Fail(ErrorCode::kOutOfMemory, "cannot map ", FormatBytes(bytes), ": ", std::strerror(errno));
  buffer.base_ = base;
  buffer.mapped_ = mapped;
  buffer.data_ = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(base), kAlignment));
  buffer.size_ = bytes;
#if defined(MADV_HUGEPAGE)
  // Only whole huge pages inside the buffer are offered, so that the tail does not round the resident size up. A
  // refusal (no transparent huge pages on this kernel) costs speed only.
  const uint64_t whole = AlignDown(bytes, kAlignment);
  if (huge_pages && whole != 0) (void)madvise(buffer.data_, whole, MADV_HUGEPAGE);
#endif
  return buffer;
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Free();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    base_ = std::exchange(other.base_, nullptr);
    mapped_ = std::exchange(other.mapped_, 0);
  }
  return *this;
}

void AlignedBuffer::Free() noexcept {
  if (base_ != nullptr) munmap(base_, mapped_);
  base_ = nullptr;
}

}  // namespace deltafin
