#include "io/read_progress.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace deltafin {
namespace {

// One call moves less than 2 GiB on every kernel; a multiple of any alignment.
constexpr uint64_t kMaxCallBytes = uint64_t{1} << 30;
// EINTR and EAGAIN pass; a device that answers nothing else for this long does not.
constexpr int kMaxFruitless = 10000;

}  // namespace

ReadProgress::ReadProgress(const ReadRequest& request) : request_(request) {
  const uint64_t alignment = request.file->alignment();
  DFIN_CHECK(request.bytes > 0 && request.offset + request.bytes > request.offset,
             "a read has bytes and does not wrap");
  DFIN_CHECK(reinterpret_cast<uintptr_t>(request.destination) % alignment == 0, "read destination is not aligned");
  start_ = AlignDown(request.offset, alignment);
  length_ = WidenedBytes(request.offset, request.bytes, alignment);
}

uint64_t ReadProgress::bytes() const { return std::min(length_ - done_, kMaxCallBytes); }

bool ReadProgress::Advance(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return Again(static_cast<int>(-result));
  if (result < 0) return FailErrno(static_cast<int>(-result));
  const uint64_t end = offset() + static_cast<uint64_t>(result);
  bytes_read_ += static_cast<uint64_t>(result);
  if (end >= request_.offset + request_.bytes) return true;
  // A short read. The next call must start at a whole block, so part of one is read again; a read that does not fill
  // even one block was stopped by the end of the file.
  const uint64_t whole = AlignDown(static_cast<uint64_t>(result), request_.file->alignment());
  if (whole == 0) return FailEndOfFile(end);
  done_ += whole;
  fruitless_ = 0;
  return false;
}

bool ReadProgress::Again(int error_number) {
  if (++fruitless_ < kMaxFruitless) return false;
  return FailErrno(error_number);
}

bool ReadProgress::FailErrno(int error_number) {
  status_ =
      Fail(ErrorCode::kIo, "reading ", request_.file->path(), ": bytes ", request_.offset, " to ",
           request_.offset + request_.bytes, ": ", std::strerror(error_number), ": check the drive and the system log");
  return true;
}

bool ReadProgress::FailEndOfFile(uint64_t end) {
  const uint64_t got = end > request_.offset ? end - request_.offset : 0;
  status_ = Fail(ErrorCode::kCorrupt, "reading ", request_.file->path(), " at offset ", request_.offset, ": expected ",
                 request_.bytes, " bytes, got ", got, ": the file is shorter than its contents say: fetch it again");
  return true;
}

}  // namespace deltafin
