#include "draft/draft_tensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/json.h"
#include "checkpoint/shard_file.h"

namespace deltafin {
namespace {

constexpr uint64_t kAlign = 64;
constexpr size_t kReadBytes = size_t{8} << 20;  // between two looks at the cancel token
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;

Result<const DraftTensor*> Expected(const TensorEntry& entry, const std::vector<DraftTensor>& expected,
                                    const std::string& path, std::string_view kind) {
  const auto it = std::lower_bound(expected.begin(), expected.end(), entry.name,
                                   [](const DraftTensor& t, std::string_view name) { return t.name < name; });
  const auto refuse = [&](const auto&... what) {
    return Fail(ErrorCode::kUnsupported, path, ": tensor ", entry.name, ": ", what...);
  };
  if (it == expected.end() || it->name != entry.name) return refuse("not one of a ", kind, " drafter of this config");
  if (entry.dtype != DType::kBF16) return refuse("expected BF16, got ", ToString(entry.dtype));
  if (!(entry.shape == it->shape)) return refuse("expected ", ToString(it->shape), ", got ", ToString(entry.shape));
  return &*it;
}

}  // namespace

Result<DraftTensors> DraftTensors::Open(const std::string& path, const std::vector<DraftTensor>& expected,
                                        std::string_view kind) {
  DraftTensors out;
  out.path_ = path;
  DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
  DFIN_TRY_VOID(CheckShardSize(shard, path));
  for (const TensorEntry& entry : shard.header.tensors()) {
    DFIN_TRY(const DraftTensor* tensor, Expected(entry, expected, path, kind));
    if (!tensor->read) continue;
    const uint64_t at = AlignUp(out.bytes_, kAlign);
    out.pieces_.push_back(
        {std::string(entry.name), entry.shape, shard.header.data_start() + entry.begin, entry.bytes, at});
    out.bytes_ = at + entry.bytes;
  }
  const std::span<const TensorEntry> found = shard.header.tensors();
  for (const DraftTensor& tensor : expected)
    if (tensor.required &&
        std::none_of(found.begin(), found.end(), [&](const TensorEntry& entry) { return entry.name == tensor.name; }))
      return Fail(ErrorCode::kUnsupported, path, ": tensor ", tensor.name, ": missing");
  return out;
}

Status DraftTensors::Load(CancelToken cancel) {
  DFIN_TRY(memory_, AlignedBuffer::Create(bytes_));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return Fail(ErrorCode::kIo, path_, ": ", std::strerror(errno));
  for (const Piece& piece : pieces_) {
    if (fseeko(file.get(), static_cast<off_t>(piece.file_offset), SEEK_SET) != 0)
      return Fail(ErrorCode::kIo, path_, ": ", std::strerror(errno));
    for (uint64_t done = 0; done < piece.bytes;) {
      if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, path_, ": stopped while loading");
      const size_t count = std::min<uint64_t>(kReadBytes, piece.bytes - done);
      if (std::fread(memory_.data() + piece.at + done, 1, count, file.get()) != count)
        return Fail(ErrorCode::kIo, path_, ": tensor ", piece.name, ": could not be read whole");
      done += count;
    }
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.name < b.name; });
  return {};
}

TensorView DraftTensors::Get(std::string_view name) const {
  const auto it = std::lower_bound(pieces_.begin(), pieces_.end(), name,
                                   [](const Piece& piece, std::string_view wanted) { return piece.name < wanted; });
  DFIN_CHECK(it != pieces_.end() && it->name == name && memory_.data() != nullptr, "no such tensor");
  return {memory_.data() + it->at, DType::kBF16, it->shape};
}

Result<std::string> ReadDraftConfig(const std::string& path) { return ReadWholeFile(path, kLargestConfig); }

}  // namespace deltafin
