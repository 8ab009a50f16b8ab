#include "pack/moved_experts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/index_file.h"
#include "checkpoint/shard_file.h"
#include "pack/journal.h"
#include "pack/set_files.h"
#include "pack/shard_rewrite.h"

namespace deltafin {
namespace {

std::vector<std::string> FoldersIn(std::string_view text) {
  std::vector<std::string> folders;
  const Result<Json> json = ParseJson(text, "folders");
  if (!json || !json->is_array()) return folders;
  for (const Json& folder : *json)
    if (folder.is_string()) folders.push_back(folder.get<std::string>());
  return folders;
}

// Experts that the index puts into each shard; without an index the one file has all of them.
Result<std::vector<std::vector<uint32_t>>> ExpertsOfShards(const std::string& model, const ModelSpec& spec,
                                                           const std::vector<std::string>& shards) {
  TensorDirectory directory(spec);
  DFIN_TRY(const FolderIndex index, ReadFolderIndex(model, directory));
  std::vector<int64_t> number(index.shards.size(), -1);  // in `shards`
  for (size_t i = 0; i < index.shards.size(); ++i)
    for (size_t s = 0; s < shards.size(); ++s)
      if (shards[s].ends_with("/" + index.shards[i].name)) number[i] = static_cast<int64_t>(s);
  std::vector<std::vector<uint32_t>> out(shards.size());
  for (int64_t p = 0; p < directory.expert_count(); ++p) {
    const int32_t shard = index.has_index ? directory.index_shard(directory.dense_count() + p * kExpertParts) : 0;
    if (shard < 0 || number[static_cast<size_t>(shard)] < 0) continue;
    out[static_cast<size_t>(number[static_cast<size_t>(shard)])].push_back(static_cast<uint32_t>(p));
  }
  return out;
}

std::string Joined(const std::vector<std::string>& folders, std::string_view between) {
  std::string text;
  for (const std::string& folder : folders) text += Cat(text.empty() ? "" : between, folder);
  return text;
}

// Where the set is: as noted for the model, else as it was when the shard was emptied.
std::vector<std::string> FoldersOfSet(const MovedShard& shard, const MoveTarget& target) {
  const Result<std::optional<ExpertSetPointer>> pointer = FindExpertPointer(target.model, target.state_folder);
  if (pointer && *pointer && ToHex((*pointer)->set_id) == shard.set) return (*pointer)->folders;
  return shard.folders;
}

Failure InAnotherSet(const MovedShard& shard, const MoveTarget& target) {
  const std::vector<std::string> folders = FoldersOfSet(shard, target);
  return Fail(
      ErrorCode::kCorrupt, shard.path, ": expected its experts here or in the expert set over ",
      Joined(target.folders, ", "), ", got a note that `deltafin pack --move` moved them to expert set ", shard.set,
      folders.empty() ? "" : Cat(" over ", Joined(folders, ", ")),
      ": another set now would be half a model. Nothing was changed. Finish that set: give `deltafin pack` again "
      "with its folders",
      folders.empty() ? "" : Cat(", --to ", Joined(folders, " --to ")),
      "; or download this shard again if the set is lost");
}

Failure RecordsLost(const MovedShard& shard, const MoveTarget& target, uint64_t lost) {
  return Fail(ErrorCode::kCorrupt, target.records, ": expected records of all ", shard.positions.size(),
              " experts that ", shard.path, " gave up to expert set ", shard.set, " over ",
              Joined(target.folders, ", "), ", got ",
              shard.positions.size() == lost ? std::string("none") : Cat(shard.positions.size() - lost),
              ": is the drive mounted, or was the file removed, replaced or cut off after --move? Nothing was changed. "
              "Bring it "
              "back; keep every ",
              kPiecePrefix, "* file, they may be the only copy; or download this shard again to pack it anew");
}

}  // namespace

Result<std::vector<MovedShard>> FindMovedShards(const std::string& model, const ModelSpec& spec,
                                                const std::vector<std::string>& shards, CancelToken cancel) {
  std::vector<MovedShard> moved;
  std::vector<size_t> numbers;
  for (size_t s = 0; s < shards.size(); ++s) {
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "opening ", model, ": stopped");
    DFIN_TRY(const ShardHeader shard, ReadShardHeader(shards[s]));
    const std::string_view set = shard.header.metadata(kExpertsMovedTo);
    if (set.empty()) continue;
    moved.push_back({shards[s], std::string(set), FoldersIn(shard.header.metadata(kExpertsMovedFolders)), {}});
    numbers.push_back(s);
  }
  if (moved.empty()) return moved;
  DFIN_TRY(std::vector<std::vector<uint32_t>> experts, ExpertsOfShards(model, spec, shards));
  for (size_t i = 0; i < moved.size(); ++i) moved[i].positions = std::move(experts[numbers[i]]);
  return moved;
}

uint64_t CountLost(const MovedShard& shard, const std::function<bool(uint32_t position)>& has) {
  return static_cast<uint64_t>(
      std::count_if(shard.positions.begin(), shard.positions.end(), [&](uint32_t p) { return !has(p); }));
}

Status CheckMovedExperts(const std::vector<MovedShard>& moved, const MoveTarget& target) {
  for (const MovedShard& shard : moved) {
    const uint64_t lost = CountLost(shard, target.has);
    if (lost == 0) continue;
    // Without its journal an unfinished set is known by its folders only.
    const bool here = shard.set == target.set ||
                      (!shard.folders.empty() && std::ranges::is_permutation(shard.folders, target.folders));
    return here ? RecordsLost(shard, target, lost) : InAnotherSet(shard, target);
  }
  return {};
}

}  // namespace deltafin
