#include "checkpoint/read_twice.h"

#include <algorithm>
#include <vector>

#include "checkpoint/integrity.h"

namespace deltafin {

Status ReadTwice::Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) {
  std::vector<uint64_t> came;
  for (int i = 0; i < kMostReads; ++i) {
    DFIN_TRY_VOID(files_->Read(file, offset, out, cancel));
    const uint64_t hash = Hash64(Bytes(out));
    if (std::find(came.begin(), came.end(), hash) != came.end()) return {};
    came.push_back(hash);
  }
  return Fail(ErrorCode::kCorrupt, file.name, ", bytes ", offset, " to ", offset + out.size() - 1, ": expected two of ",
              kMostReads,
              " fetches to bring the same bytes (--check-twice), got as many "
              "different ones: the connection or the hub damages data");
}

}  // namespace deltafin
