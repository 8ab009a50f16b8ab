#include "checkpoint/index_file.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/model_file.h"

namespace deltafin {
namespace {

// The release has 96.
constexpr size_t kMaxShards = 4096;

// Numbers shard names in order of appearance. Neighbours in the index are mostly in the same shard.
class ShardNumbers {
 public:
  explicit ShardNumbers(std::vector<IndexedShard>& shards) : shards_(shards) {}

  int32_t NumberOf(std::string_view name) {
    if (last_ >= 0 && shards_[static_cast<size_t>(last_)].name == name) return last_;
    const auto [it, is_new] = numbers_.try_emplace(std::string(name), static_cast<int32_t>(shards_.size()));
    if (is_new) shards_.push_back({std::string(name), 0, 0, 0, ""});
    last_ = it->second;
    return last_;
  }

 private:
  std::vector<IndexedShard>& shards_;
  std::unordered_map<std::string, int32_t> numbers_;
  int32_t last_ = -1;
};

void SortShards(std::vector<IndexedShard>& shards, TensorDirectory& directory) {
  std::vector<int32_t> order(shards.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t i) -> IndexedShard& { return shards[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a).name < at(b).name; });
  std::vector<int32_t> new_number(shards.size());
  std::vector<IndexedShard> sorted;
  for (const int32_t old : order) {
    new_number[static_cast<size_t>(old)] = static_cast<int32_t>(sorted.size());
    sorted.push_back(std::move(at(old)));
  }
  shards = std::move(sorted);
  for (int64_t slot = 0; slot < directory.slot_count(); ++slot)
    if (const int32_t old = directory.index_shard(slot); old >= 0)
      directory.SetIndexShard(slot, new_number[static_cast<size_t>(old)]);
}

Status ReadIndex(const std::string& path, TensorDirectory& directory, std::vector<std::string>* unknown,
                 std::vector<IndexedShard>& shards) {
  DFIN_TRY(const std::string text, ReadModelFile(path, kMaxIndexBytes));
  ShardNumbers numbers(shards);
  return ParseIndex(text, path, [&](std::string_view tensor, std::string_view shard) -> Status {
    const TensorDirectory::Lookup found = directory.Find(tensor);
    if (found.kind == TensorDirectory::Lookup::Kind::kUnknown) {
      if (unknown == nullptr) return UnknownTensorError(path, tensor);
      unknown->emplace_back(tensor);
    }
    const int32_t number = numbers.NumberOf(shard);
    if (shards.size() > kMaxShards)
      return Fail(ErrorCode::kCorrupt, path, ": expected at most ", kMaxShards, " shards, got more");
    IndexedShard& entry = shards[static_cast<size_t>(number)];
    if (found.kind != TensorDirectory::Lookup::Kind::kText) {
      ++entry.other_tensors;
      return {};
    }
    if (directory.index_shard(found.slot) >= 0)
      return Fail(ErrorCode::kCorrupt, path, ": tensor '", tensor, "': expected once, got it twice");
    directory.SetIndexShard(found.slot, number);
    if (found.slot < directory.dense_count()) ++entry.dense_tensors;
    if (entry.text_tensors++ == 0) entry.example = std::string(tensor);
    return {};
  });
}

}  // namespace

Status CheckIndexAgrees(const FolderIndex& index, const TensorDirectory& directory, int64_t slot, int32_t shard,
                        const std::string& path) {
  const int32_t indexed = directory.index_shard(slot);
  if (!index.has_index || indexed == shard) return {};
  const std::string where = indexed < 0 ? "nowhere" : "in " + index.shards[static_cast<size_t>(indexed)].name;
  return Fail(ErrorCode::kCorrupt, path, ": tensor '", directory.Name(slot), "': expected ", where, " as ",
              kIndexFileName, " says, got it here: index and shards may be of different downloads");
}

Failure UnknownTensorError(const std::string& what, std::string_view tensor) {
  return Fail(
      ErrorCode::kUnsupported, what, ": tensor '", tensor.substr(0, 200),
      "': expected only tensors that Kimi K3 with this config.json has (vision_tower.* and mm_projector.* apart), "
      "got an unknown one: config.json and weights may be of different models");
}

Result<FolderIndex> ReadFolderIndex(const std::string& folder, TensorDirectory& directory,
                                    std::vector<std::string>* unknown) {
  FolderIndex index;
  const std::string path = folder + "/" + kIndexFileName;
  Result<FileStamp> stamp = StampFile(path);
  if (stamp) {
    index.has_index = true;
    index.stamp = *stamp;
    DFIN_TRY_VOID(ReadIndex(path, directory, unknown, index.shards));
    SortShards(index.shards, directory);
    return index;
  }
  if (stamp.error().code() != ErrorCode::kNotFound) return Failure(std::move(stamp.error()));
  const Result<FileStamp> single = StampFile(folder + "/" + kSingleFileName);
  if (!single && single.error().code() != ErrorCode::kNotFound) return Failure(single.error());
  if (!single)
    return Fail(ErrorCode::kNotFound, path, ": expected this file, or one ", kSingleFileName,
                ", got neither: download the rest of the checkpoint into ", folder);
  index.shards.push_back({kSingleFileName, directory.slot_count(), directory.dense_count(), 0, directory.Name(0)});
  return index;
}

}  // namespace deltafin
