#include "pack/shard_rewrite.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_file.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

constexpr uint64_t kHeaderAlignment = 8;
constexpr size_t kCopyBytes = size_t{8} << 20;

// Closes when it dies.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~InputFile() {
    if (fd_ >= 0) close(fd_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  Status Read(uint64_t offset, MutBytes to) const {
    while (!to.empty()) {
      const ssize_t n = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) return Fail(ErrorCode::kCorrupt, path_, ": ends at byte ", offset, ", expected ", to.size(), " more");
      if (n < 0) return DiskFailure("reading", path_, errno);
      offset += static_cast<uint64_t>(n);
      to = to.subspan(static_cast<size_t>(n));
    }
    return {};
  }

 private:
  const std::string& path_;
  int fd_;
};

struct Kept {
  std::string name;
  Json value;  // dtype, shape, data_offsets
  uint64_t begin = 0, end = 0;
};

// The header's JSON with the tensors that stay, and where their bytes are in the old file's data.
Result<std::string> SmallerHeader(const std::string& json, const std::string& path, const Json& note,
                                  std::vector<Kept>& kept) {
  DFIN_TRY(const Json header, ParseJson(json, path));
  Json smaller = Json::object();
  Json metadata = header.contains("__metadata__") ? header["__metadata__"] : Json::object();
  metadata.update(note);
  smaller["__metadata__"] = std::move(metadata);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__" || ParseTensorName(name).kind == TensorName::Kind::kExpert) continue;
    const Json& offsets = value["data_offsets"];
    kept.push_back({name, value, offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()});
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.begin < b.begin; });
  uint64_t at = 0;
  for (Kept& tensor : kept) {
    const uint64_t bytes = tensor.end - tensor.begin;
    tensor.value["data_offsets"] = {at, at + bytes};
    smaller[tensor.name] = std::move(tensor.value);
    at += bytes;
  }
  std::string text = DumpJson(smaller);
  text.resize(AlignUp(text.size(), kHeaderAlignment), ' ');
  return text;
}

}  // namespace

Status EmptyShard(const DiskHook& hook, const std::string& path, uint64_t set_id,
                  const std::vector<std::string>& folders) {
  // Checks the header in every respect before anything is derived from it.
  DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
  DFIN_TRY_VOID(CheckShardSize(shard, path));
  const InputFile in(path);
  const uint64_t data_start = shard.header.data_start();
  std::string json(static_cast<size_t>(data_start - 8), '\0');
  DFIN_TRY_VOID(in.Read(8, std::as_writable_bytes(std::span(json))));
  std::vector<Kept> kept;
  Json note;
  note[std::string(kExpertsMovedTo)] = ToHex(set_id);
  note[std::string(kExpertsMovedFolders)] = DumpJson(folders);
  DFIN_TRY(const std::string header, SmallerHeader(json, path, note, kept));

  DFIN_TRY_VOID(Announce(hook, DiskStep::kWrite, path));
  DFIN_TRY(AtomicFile out, AtomicFile::Create(path));
  std::array<char, 8> length{};
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  DFIN_TRY_VOID(out.Write(std::as_bytes(std::span(length))));
  DFIN_TRY_VOID(out.Write(std::as_bytes(std::span(header))));
  std::vector<std::byte> buffer(kCopyBytes);
  for (const Kept& tensor : kept) {
    for (uint64_t at = tensor.begin; at < tensor.end;) {
      const auto piece = static_cast<size_t>(std::min<uint64_t>(buffer.size(), tensor.end - at));
      DFIN_TRY_VOID(in.Read(data_start + at, MutBytes(buffer).first(piece)));
      DFIN_TRY_VOID(out.Write(Bytes(buffer).first(piece)));
      at += piece;
    }
  }
  DFIN_TRY_VOID(Announce(hook, DiskStep::kPublish, path));
  return out.Publish();
}

}  // namespace deltafin
