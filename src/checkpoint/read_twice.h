// ReadTwice: remote files whose every range comes at least twice, until two came the same.
//
// For connections that do not protect what crosses them: ranges of a file have no checksum that anybody published, so
// that they come the same again is all there is to look at. What damages every copy in the same way is not found: a hub
// that has it wrong itself. Thread-safe, as RemoteFiles wants it. Errors: those of the files it reads; kCorrupt when no
// two of several were the same.
#pragma once

#include <memory>
#include <utility>

#include "checkpoint/remote_files.h"

namespace deltafin {

class ReadTwice final : public RemoteFiles {
 public:
  static constexpr int kMostReads = 6;

  explicit ReadTwice(std::unique_ptr<RemoteFiles> files) : files_(std::move(files)) {}

  Status Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) override;
  bool reads_twice() const override { return true; }

 private:
  const std::unique_ptr<RemoteFiles> files_;
};

}  // namespace deltafin
