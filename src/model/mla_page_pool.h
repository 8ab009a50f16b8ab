// MlaPagePool: the memory that pages of MLA latents lie in, for every sequence of an engine.
//
// All pages of a pool are equally long. Long ones (2 MiB and more: K3's have 7.1 MB) are mapped one by one; shorter
// ones are cut from blocks of 8 MiB, which the kernel commits as they are touched. Either way they lie in huge pages
// where the system gives them: attention over a long context reads every latent once a token, and is slower in 4 KiB
// pages (docs/PERFORMANCE.md). A page that goes is used again; a block whose pages all went is unmapped.
//
// MlaPage: a counted reference to a page. The pool lives as long as a page of it does.
// Thread rule: one thread for a pool and its pages. Errors: kOutOfMemory from Take(). Taking a page allocates nothing
// but, at times, a block.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/result.h"

namespace deltafin {

class MlaPagePool;

class MlaPage {
 public:
  MlaPage(const MlaPage& other) : header_(other.header_) { Hold(); }
  MlaPage(MlaPage&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  MlaPage& operator=(MlaPage other) noexcept {
    std::swap(header_, other.header_);
    return *this;
  }
  ~MlaPage() { Release(); }

  std::byte* data() const;
  bool shared() const;
  // Rows that some sharer has written or is about to.
  int64_t filled() const;
  void set_filled(int64_t rows);
  bool operator==(const MlaPage&) const = default;

 private:
  friend class MlaPagePool;
  struct Header;  // lies in the page's block, behind its pages
  explicit MlaPage(Header* header) : header_(header) {}
  void Hold() const;
  void Release() noexcept;

  Header* header_;
};

class MlaPagePool : public std::enable_shared_from_this<MlaPagePool> {
 public:
  static std::shared_ptr<MlaPagePool> Create(uint64_t page_bytes);
  // What a pool may have committed beyond the pages that are held.
  static uint64_t SlackBytes(uint64_t page_bytes);
  ~MlaPagePool();
  MlaPagePool(const MlaPagePool&) = delete;
  MlaPagePool& operator=(const MlaPagePool&) = delete;

  uint64_t page_bytes() const { return page_bytes_; }
  int64_t blocks() const { return blocks_; }  // that are mapped

  // A page of its own; what stands in it is not said.
  Result<MlaPage> Take();

 private:
  friend class MlaPage;
  struct Block;

  explicit MlaPagePool(uint64_t page_bytes);
  Status AddBlock();
  void GiveBack(MlaPage::Header* header) noexcept;
  void Link(Block* block) noexcept;
  void Unlink(Block* block) noexcept;

  const uint64_t page_bytes_;  // as asked for
  const uint64_t stride_;      // from page to page
  const int64_t pages_in_block_;
  int64_t blocks_ = 0;
  Block* open_ = nullptr;  // blocks that have a page to give
};

}  // namespace deltafin
