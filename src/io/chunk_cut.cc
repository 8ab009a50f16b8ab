#include "io/chunk_cut.h"

#include <algorithm>

namespace deltafin {
namespace {

uint64_t BorderAlignment(const ReadPart& part) {
  const uint64_t alignment = part.request.file->alignment();
  return part.copy.file == nullptr ? alignment : std::max(alignment, part.copy.file->alignment());
}

}  // namespace

bool CopyFits(const ReadPart& part) {
  if (part.copy.file == nullptr || part.copy.drive < 0 || part.copy.drive == part.drive) return false;
  const ReadRequest& request = part.request;
  const uint64_t first = request.file->alignment();
  const uint64_t second = part.copy.file->alignment();
  if ((part.copy.offset - request.offset) % std::max(first, second) != 0) return false;
  if (second <= first) return true;
  // Coarser blocks there: they must not reach beyond the memory of the finer ones here.
  const uint64_t end = request.offset + request.bytes;
  return AlignDown(request.offset, second) == AlignDown(request.offset, first) &&
         AlignUp(end, second) == AlignUp(end, first) && reinterpret_cast<uintptr_t>(request.destination) % second == 0;
}

ReadRequest NextChunk(const ReadPart& part, uint64_t handed_out, uint64_t chunk_bytes) {
  const ReadRequest& request = part.request;
  const uint64_t step = AlignUp(chunk_bytes, BorderAlignment(part));
  const uint64_t start = AlignDown(request.offset, request.file->alignment());
  const uint64_t offset = request.offset + handed_out;
  const uint64_t block = AlignDown(offset, request.file->alignment());
  const uint64_t border = start + (offset - start) / step * step + step;
  const uint64_t end = std::min(request.offset + request.bytes, border);
  return {request.file, offset, end - offset, request.destination + (block - start)};
}

ReadRequest AtCopy(const ReadPart& part, const ReadRequest& range) {
  const uint64_t offset = part.copy.offset + (range.offset - part.request.offset);
  const uint64_t lead_here = range.offset % range.file->alignment();
  const uint64_t lead_there = offset % part.copy.file->alignment();
  return {part.copy.file, offset, range.bytes, range.destination + lead_here - lead_there};
}

}  // namespace deltafin
