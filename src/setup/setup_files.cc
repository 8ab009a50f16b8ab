#include "setup/setup_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>

#include "checkpoint/integrity.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_file.h"
#include "pack/disk.h"
#include "setup/own_names.h"

namespace deltafin {
namespace {

// What the journal says of one file.
struct Known {
  std::vector<HttpRange> ranges;
  std::optional<int64_t> verified_ns;
};

std::vector<HttpRange> Joined(std::vector<HttpRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::vector<HttpRange> out;
  for (const HttpRange& range : ranges) {
    if (!out.empty() && range.offset <= out.back().offset + out.back().length)
      out.back().length = std::max(out.back().length, range.offset + range.length - out.back().offset);
    else
      out.push_back(range);
  }
  return out;
}

std::map<uint32_t, Known> Fold(const std::vector<SetupEntry>& entries, const std::map<uint32_t, uint64_t>& sizes) {
  std::map<uint32_t, Known> known;
  for (const SetupEntry& entry : entries) {
    const auto size = sizes.find(entry.file);
    if (size == sizes.end()) continue;
    Known& file = known[entry.file];
    switch (entry.kind) {
      case SetupEntry::Kind::kRange:
        if (entry.length > 0 && entry.offset <= size->second && entry.length <= size->second - entry.offset)
          file.ranges.push_back({entry.offset, entry.length});
        break;
      case SetupEntry::Kind::kAgain:
        file = {};
        break;
      case SetupEntry::Kind::kVerified:
        file.verified_ns = entry.modified_ns;
        break;
    }
  }
  return known;
}

// Size alone says nothing: a partial file has its full size from the beginning.
bool IsAsItWas(const std::string& path, uint64_t size, int64_t modified_ns) {
  const Result<FileStamp> stamp = StampFile(path);
  return stamp && *stamp == FileStamp{size, modified_ns};
}

bool GaveUpExperts(const SetupFile& file) {
  if (!file.is_shard) return false;
  const Result<ShardHeader> shard = ReadShardHeader(file.path);
  return shard && !shard->header.metadata(kExpertsMovedTo).empty();
}

Status FindState(const Known& known, SetupFile& file) {
  if (!FileExists(file.path)) {
    const bool verified = known.verified_ns && IsAsItWas(file.path + ".part", file.file.size, *known.verified_ns);
    file.state = verified ? SetupFile::State::kPartVerified : SetupFile::State::kMissing;
    // A verified file that is gone was taken away: nothing of it is left.
    file.was_taken_away = known.verified_ns && !verified;
    if (!known.verified_ns) file.present = Joined(known.ranges);
    return {};
  }
  DFIN_TRY(const FileStamp stamp, StampFile(file.path));
  if (stamp.bytes == file.file.size) {
    const bool same = known.verified_ns && *known.verified_ns == stamp.modified_ns;
    file.state = same ? SetupFile::State::kThere : SetupFile::State::kUnchecked;
    return {};
  }
  if (!GaveUpExperts(file))
    return Fail(ErrorCode::kCorrupt, file.path, ": expected ", file.file.size, " bytes as in the repository, got ",
                stamp.bytes,
                ": setup overwrites nothing: remove this file to have it fetched, or give another folder with --to");
  file.state = SetupFile::State::kMoved;
  return {};
}

}  // namespace

std::vector<SetupFile> ChooseFiles(const HubListing& listing, const std::string& folder,
                                   std::vector<std::string>& left_out) {
  std::vector<SetupFile> files;
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const HubFile& file = listing.files[i];
    if (IsHiddenName(file.path)) continue;
    if (IsOwnName(file.path)) {
      left_out.push_back(file.path);
      continue;
    }
    SetupFile chosen;
    chosen.file = file;
    chosen.number = static_cast<uint32_t>(i);
    chosen.path = folder + "/" + file.path;
    chosen.is_shard = file.path.ends_with(".safetensors");
    files.push_back(std::move(chosen));
  }
  std::stable_partition(files.begin(), files.end(), [](const SetupFile& f) { return !f.is_shard; });
  return files;
}

Status FindStates(const std::vector<SetupEntry>& entries, std::vector<SetupFile>& files) {
  std::map<uint32_t, uint64_t> sizes;
  for (const SetupFile& file : files) sizes[file.number] = file.file.size;
  std::map<uint32_t, Known> known = Fold(entries, sizes);
  for (SetupFile& file : files) DFIN_TRY_VOID(FindState(known[file.number], file));
  return {};
}

uint64_t ListingHash(const HubListing& listing) {
  std::string text;
  for (const HubFile& file : listing.files)
    text += Cat(file.path, '\n', file.size, '\n', file.sha256, '\n', file.git_sha1, '\n');
  return Hash64(text);
}

}  // namespace deltafin
