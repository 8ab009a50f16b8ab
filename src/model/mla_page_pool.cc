#include "model/mla_page_pool.h"

#include <algorithm>
#include <new>

#include "base/bytes.h"
#include "base/check.h"

namespace deltafin {
namespace {

constexpr uint64_t kHugePage = AlignedBuffer::kAlignment;
constexpr uint64_t kBlockBytes = 4 * kHugePage;
constexpr uint64_t kPageAlignment = 64;

}  // namespace

struct MlaPage::Header {
  std::byte* data = nullptr;
  MlaPagePool::Block* block = nullptr;
  int64_t references = 0;
  int64_t filled = 0;
  Header* next_free = nullptr;
};

// Lies in the memory that it owns, behind the pages; the headers of its pages follow it.
struct MlaPagePool::Block {
  AlignedBuffer memory;
  std::shared_ptr<MlaPagePool> pool;
  Block* next = nullptr;  // of those that have a page to give
  Block* previous = nullptr;
  int64_t touched = 0;  // pages given at least once; the memory behind them may not be committed yet
  int64_t held = 0;
  MlaPage::Header* free = nullptr;  // of the touched ones

  MlaPage::Header* headers() { return reinterpret_cast<MlaPage::Header*>(this + 1); }
};

std::byte* MlaPage::data() const { return header_->data; }
bool MlaPage::shared() const { return header_->references > 1; }
int64_t MlaPage::filled() const { return header_->filled; }
void MlaPage::set_filled(int64_t rows) { header_->filled = rows; }

void MlaPage::Hold() const {
  if (header_ != nullptr) ++header_->references;
}

void MlaPage::Release() noexcept {
  if (header_ == nullptr || --header_->references > 0) return;
  // The block owns the pool that the call runs in.
  const std::shared_ptr<MlaPagePool> pool = header_->block->pool;
  pool->GiveBack(header_);
}

std::shared_ptr<MlaPagePool> MlaPagePool::Create(uint64_t page_bytes) {
  return std::shared_ptr<MlaPagePool>(new MlaPagePool(page_bytes));
}

uint64_t MlaPagePool::SlackBytes(uint64_t page_bytes) { return page_bytes >= kHugePage ? 0 : kHugePage; }

MlaPagePool::MlaPagePool(uint64_t page_bytes)
    : page_bytes_(page_bytes),
      stride_(AlignUp(std::max<uint64_t>(page_bytes, 1), kPageAlignment)),
      pages_in_block_(page_bytes >= kHugePage
                          ? 1
                          : static_cast<int64_t>((kBlockBytes - sizeof(Block)) / (stride_ + sizeof(MlaPage::Header)))) {
}

MlaPagePool::~MlaPagePool() { DFIN_CHECK(blocks_ == 0, "blocks own the pool"); }

Status MlaPagePool::AddBlock() {
  const auto pages = static_cast<uint64_t>(pages_in_block_);
  const uint64_t rows = pages * stride_, headers = sizeof(Block) + pages * sizeof(MlaPage::Header);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(std::max(rows + headers, pages == 1 ? 0 : kBlockBytes)));
  auto* block = new (memory.data() + rows) Block;
  block->memory = std::move(memory);
  block->pool = shared_from_this();
  ++blocks_;
  Link(block);
  return {};
}

Result<MlaPage> MlaPagePool::Take() {
  if (open_ == nullptr) DFIN_TRY_VOID(AddBlock());
  Block* block = open_;
  MlaPage::Header* header = block->free;
  if (header != nullptr) {
    block->free = header->next_free;
  } else {
    header = new (block->headers() + block->touched) MlaPage::Header;
    header->data = block->memory.data() + static_cast<uint64_t>(block->touched) * stride_;
    header->block = block;
    ++block->touched;
  }
  header->references = 1;
  header->filled = 0;
  if (++block->held == pages_in_block_) Unlink(block);
  return MlaPage(header);
}

void MlaPagePool::GiveBack(MlaPage::Header* header) noexcept {
  Block* block = header->block;
  if (block->held-- == pages_in_block_) Link(block);
  header->next_free = block->free;
  block->free = header;
  if (block->held > 0) return;
  Unlink(block);
  --blocks_;
  const AlignedBuffer memory = std::move(block->memory);  // unmapped when this returns
  block->~Block();
}

void MlaPagePool::Link(Block* block) noexcept {
  block->previous = nullptr;
  block->next = open_;
  if (open_ != nullptr) open_->previous = block;
  open_ = block;
}

void MlaPagePool::Unlink(Block* block) noexcept {
  (block->previous == nullptr ? open_ : block->previous->next) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
}

}  // namespace deltafin
