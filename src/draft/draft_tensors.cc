#include "draft/draft_tensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

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

bool FileExists(const std::string& path) {
  std::error_code failed;
  return std::filesystem::exists(path, failed);
}

}  // namespace

Result<std::vector<std::string>> FindDraftFiles(const std::string& folder) {
  const std::string whole = folder + "/model.safetensors";
  if (FileExists(whole)) return std::vector<std::string>{whole};
  // The number of parts stands in every part's name.
  int parts = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    int part = 0, of = 0, length = 0;
    const std::string name = it->path().filename().string();
    if (std::sscanf(name.c_str(), "model-%5d-of-%5d.safetensors%n", &part, &of, &length) == 2 &&
        static_cast<size_t>(length) == name.size())
      parts = std::max(parts, of);
  }
  if (parts == 0) return Fail(ErrorCode::kNotFound, whole, ": not there, and no parts of it either");
  std::vector<std::string> paths;
  for (int part = 1; part <= parts; ++part) {
    char name[64];
    std::snprintf(name, sizeof name, "/model-%05d-of-%05d.safetensors", part, parts);
    paths.push_back(folder + name);
    if (!FileExists(paths.back()))
      return Fail(ErrorCode::kNotFound, paths.back(), ": missing, one of ", parts, " parts");
  }
  return paths;
}

Result<DraftTensors> DraftTensors::Open(std::vector<std::string> paths, const std::vector<DraftTensor>& expected,
                                        std::string_view kind) {
  DraftTensors out;
  out.paths_ = std::move(paths);
  std::vector<std::string> found;
  for (size_t f = 0; f < out.paths_.size(); ++f) {
    const std::string& path = out.paths_[f];
    DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
    DFIN_TRY_VOID(CheckShardSize(shard, path));
    for (const TensorEntry& entry : shard.header.tensors()) {
      DFIN_TRY(const DraftTensor* tensor, Expected(entry, expected, path, kind));
      found.emplace_back(entry.name);
      if (!tensor->read) continue;
      const uint64_t at = AlignUp(out.bytes_, kAlign);
      out.pieces_.push_back(
          {std::string(entry.name), entry.shape, f, shard.header.data_start() + entry.begin, entry.bytes, at});
      out.bytes_ = at + entry.bytes;
    }
  }
  std::sort(found.begin(), found.end());
  if (const auto twice = std::adjacent_find(found.begin(), found.end()); twice != found.end())
    return Fail(ErrorCode::kUnsupported, out.paths_.front(), ": tensor ", *twice, ": in two of the files");
  for (const DraftTensor& tensor : expected)
    if (tensor.required && !std::binary_search(found.begin(), found.end(), tensor.name))
      return Fail(ErrorCode::kUnsupported, out.paths_.front(), ": tensor ", tensor.name, ": missing");
  return out;
}

Status DraftTensors::Load(CancelToken cancel) {
  DFIN_TRY(memory_, AlignedBuffer::Create(bytes_));
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(nullptr, &std::fclose);
  size_t opened = paths_.size();
  for (const Piece& piece : pieces_) {  // file after file
    const std::string& path = paths_[piece.file];
    if (piece.file != opened) file.reset(std::fopen(path.c_str(), "rb"));
    opened = piece.file;
    if (file == nullptr || fseeko(file.get(), static_cast<off_t>(piece.file_offset), SEEK_SET) != 0)
      return Fail(ErrorCode::kIo, path, ": ", std::strerror(errno));
    for (uint64_t done = 0; done < piece.bytes;) {
      if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, path, ": stopped while loading");
      const size_t count = std::min<uint64_t>(kReadBytes, piece.bytes - done);
      if (std::fread(memory_.data() + piece.at + done, 1, count, file.get()) != count)
        return Fail(ErrorCode::kIo, path, ": tensor ", piece.name, ": could not be read whole");
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
