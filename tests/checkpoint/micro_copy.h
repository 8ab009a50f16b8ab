// micro_copy: a writable copy of k3-micro, and the edits that break it in one particular way.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "support/test_data.h"

namespace deltafin::test {

std::string ReadBytes(const std::string& path);
void WriteBytes(const std::string& path, const std::string& bytes);

class MicroCopy {
 public:
  MicroCopy();

  const std::string& folder() const { return folder_.path(); }
  std::string path(const std::string& file) const { return folder() + "/" + file; }
  // Shard 1..7.
  static std::string ShardName(int number);
  std::string shard(int number) const { return path(ShardName(number)); }

  void EditJson(const std::string& file, const std::function<void(Json&)>& edit);
  // Rewrites a shard's header and leaves its data. `pad` spaces are appended to the header.
  void EditHeader(int number, const std::function<void(Json&)>& edit, size_t pad = 0);
  // Sets one byte.
  void Poke(const std::string& file, uint64_t offset, unsigned char value);

  Result<Checkpoint> Open() const { return Checkpoint::Open({folder(), ""}); }
  // "opened", or the error's message.
  std::string Message() const;
  ErrorCode Code() const;  // kInternal when it opens

 private:
  TempFolder folder_;
};

// Rewrites a shard without its experts, as `pack --move` does, with a note of the set; "" leaves no note.
void TakeExpertsOut(MicroCopy& copy, int number, const std::string& moved_to);

// The header of a safetensors file, parsed by another library than ours, and where its data starts.
struct ForeignHeader {
  Json tensors;
  uint64_t data_start = 0;
};
ForeignHeader ReadForeignHeader(const std::string& path);

// Reads bytes with stdio, past everything under test.
std::string ReadRange(const std::string& path, uint64_t offset, uint64_t bytes);

}  // namespace deltafin::test
