#include "draft/dspark_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/shard_file.h"

namespace deltafin {
namespace {

constexpr uint64_t kAlign = 64;
constexpr size_t kReadBytes = size_t{8} << 20;  // between two looks at the cancel token
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;

Status CheckRegular(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0)
    return Fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo, path, ": ",
                std::strerror(errno));
  if (S_ISREG(info.st_mode)) return {};
  return Fail(ErrorCode::kUnsupported, path, ": expected a regular file, got ",
              S_ISLNK(info.st_mode) ? "a symbolic link: copy the file here" : "something else");
}

// Every tensor of `expected` and no other.
Status CheckTensors(const SafetensorsHeader& header, const std::vector<DsparkTensor>& expected,
                    const std::string& path) {
  for (const TensorEntry& entry : header.tensors()) {
    const auto it = std::lower_bound(expected.begin(), expected.end(), entry.name,
                                     [](const DsparkTensor& t, std::string_view name) { return t.name < name; });
    if (it == expected.end() || it->name != entry.name)
      return Fail(ErrorCode::kUnsupported, path, ": tensor ", entry.name,
                  ": not one of a DSpark drafter of this config");
    if (entry.dtype != DType::kBF16)
      return Fail(ErrorCode::kUnsupported, path, ": tensor ", entry.name, ": expected BF16, got ",
                  ToString(entry.dtype));
    if (!(entry.shape == it->shape))
      return Fail(ErrorCode::kUnsupported, path, ": tensor ", entry.name, ": expected ", ToString(it->shape), ", got ",
                  ToString(entry.shape));
  }
  if (header.tensors().size() == expected.size()) return {};
  for (const DsparkTensor& tensor : expected)
    if (std::none_of(header.tensors().begin(), header.tensors().end(),
                     [&](const TensorEntry& entry) { return entry.name == tensor.name; }))
      return Fail(ErrorCode::kUnsupported, path, ": tensor ", tensor.name, ": missing");
  return {};
}

}  // namespace

Result<DsparkWeights> DsparkWeights::Open(const std::string& folder, const ModelSpec& target) {
  DsparkWeights weights;
  const std::string config_path = folder + "/config.json";
  weights.path_ = folder + "/model.safetensors";
  DFIN_TRY_VOID(CheckRegular(config_path));
  DFIN_TRY_VOID(CheckRegular(weights.path_));
  DFIN_TRY(const std::string json, ReadWholeFile(config_path, kLargestConfig));
  DFIN_TRY(weights.config_, DsparkConfig::Parse(json, config_path, target));
  DFIN_TRY(const ShardHeader shard, ReadShardHeader(weights.path_));
  DFIN_TRY_VOID(CheckShardSize(shard, weights.path_));
  DFIN_TRY_VOID(CheckTensors(shard.header, DsparkTensors(weights.config_), weights.path_));
  for (const TensorEntry& entry : shard.header.tensors()) {
    if (entry.name == kDsparkEmbedding) continue;
    const uint64_t at = AlignUp(weights.bytes_, kAlign);
    weights.pieces_.push_back(
        {std::string(entry.name), entry.shape, shard.header.data_start() + entry.begin, entry.bytes, at});
    weights.bytes_ = at + entry.bytes;
  }
  return weights;
}

Status DsparkWeights::Load(CancelToken cancel) {
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

TensorView DsparkWeights::Get(std::string_view name) const {
  const auto it = std::lower_bound(pieces_.begin(), pieces_.end(), name,
                                   [](const Piece& piece, std::string_view wanted) { return piece.name < wanted; });
  DFIN_CHECK(it != pieces_.end() && it->name == name && memory_.data() != nullptr, "no such tensor");
  return {memory_.data() + it->at, DType::kBF16, it->shape};
}

TensorView DsparkWeights::Layer(int64_t layer, std::string_view name) const {
  return Get(Cat("layers.", layer, ".", name, ".weight"));
}

}  // namespace deltafin
