#include "setup/setup_space.h"

#include <algorithm>
#include <filesystem>

#include "pack/disk.h"
#include "pack/target_folders.h"
#include "spec/expert_record.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

// The folder itself, or the one that it will be made in.
std::string ThatExists(const std::string& folder) {
  fs::path path = FullPath(folder);
  while (!FileExists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

struct Totals {
  uint64_t small = 0, shards = 0;                  // of all files
  uint64_t small_missing = 0, shards_missing = 0;  // still to be fetched
  uint64_t shards_whole = 0;                       // there, experts included
  uint64_t largest_shard = 0;
};

Totals AddUp(const std::vector<SetupFile>& files) {
  Totals t;
  for (const SetupFile& file : files) {
    uint64_t missing = 0;
    if (file.state == SetupFile::State::kMissing) {
      const uint64_t has = AllocatedBytes(file.path + ".part");
      missing = file.file.size - std::min(file.file.size, has);
    }
    (file.is_shard ? t.shards : t.small) += file.file.size;
    (file.is_shard ? t.shards_missing : t.small_missing) += missing;
    if (!file.is_shard) continue;
    t.largest_shard = std::max(t.largest_shard, file.file.size);
    if (file.state != SetupFile::State::kMoved && file.state != SetupFile::State::kMissing)
      t.shards_whole += file.file.size;
  }
  return t;
}

uint64_t ExpertBytes(const ModelSpec& spec) {
  const auto records = static_cast<uint64_t>(spec.num_moe_layers * spec.num_experts);
  return records * static_cast<uint64_t>(ExpertGeometry(spec).record_bytes());
}

std::vector<double> Shares(const std::vector<PackTarget>& targets) {
  const bool measured = std::ranges::all_of(targets, [](const auto& t) { return t.bytes_per_second > 0; });
  double sum = 0;
  std::vector<double> shares;
  for (const PackTarget& target : targets) {
    shares.push_back(measured ? target.bytes_per_second : 1);
    sum += shares.back();
  }
  for (double& share : shares) share /= sum;
  return shares;
}

uint64_t Part(uint64_t bytes, double share) { return static_cast<uint64_t>(static_cast<double>(bytes) * share); }

}  // namespace

Result<std::vector<SetupSpace>> NeededSpace(const SetupOptions& options, const std::vector<SetupFile>& files,
                                            const ModelSpec* spec) {
  const Totals t = AddUp(files);
  const bool passes_through = !options.pack.targets.empty() && !options.keep_shards;
  std::vector<SetupSpace> space;
  uint64_t here = t.small_missing + t.shards_missing;
  double to_pack = 0;  // of all experts
  if (spec != nullptr && t.shards > 0) {
    const auto all = static_cast<double>(t.shards);
    const uint64_t dense = t.shards - std::min(t.shards, ExpertBytes(*spec));
    if (passes_through)
      here = std::min(here,
                      t.small_missing + Part(dense, static_cast<double>(t.shards_missing) / all) + 2 * t.largest_shard);
    to_pack = static_cast<double>(t.shards_missing + t.shards_whole) / all;
  }
  space.push_back({options.to, here, 0});
  if (spec != nullptr) {
    const std::vector<double> shares = Shares(options.pack.targets);
    const uint64_t records = Part(ExpertBytes(*spec), std::min(1.0, to_pack)) + options.pack.replica_bytes;
    for (size_t i = 0; i < shares.size(); ++i) {
      const std::string& folder = options.pack.targets[i].folder;
      uint64_t has = 0;  // an unfinished pack's files may be long already
      for (const std::string& name : ListFiles(folder, "experts-")) has += AllocatedBytes(folder + "/" + name);
      const uint64_t needed = Part(records, shares[i]);
      space.push_back({folder, to_pack < 1 ? needed : needed - std::min(needed, has), 0});
    }
  }
  for (SetupSpace& one : space) {
    DFIN_TRY(const DeviceSpace device, SpaceOf(ThatExists(one.folder)));
    one.free_bytes = device.free_bytes;
  }
  return space;
}

Status CheckNeededSpace(const std::vector<SetupSpace>& space) {
  std::vector<SpaceNeed> needs;
  for (const SetupSpace& one : space) needs.push_back({ThatExists(one.folder), one.needed});
  return CheckSpace(needs, "", 0);
}

}  // namespace deltafin
