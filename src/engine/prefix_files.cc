#include "engine/prefix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

uint64_t FileBytes(const SnapshotFiles& files) {
  std::error_code state_failed, latents_failed;
  const uint64_t state = fs::file_size(files.StatePath(), state_failed);
  const uint64_t latents = fs::file_size(files.LatentsPath(), latents_failed);
  return (state_failed ? 0 : state) + (latents_failed ? 0 : latents);
}

// Two texts of one hash would share a name: then the later one replaces the earlier, since tokens are compared.
std::string StemFor(const std::string& folder, std::span<const TokenId> tokens) {
  return (fs::path(folder) / ToHex(Hash64(std::as_bytes(tokens)))).string();
}

}  // namespace

Result<PrefixFiles> PrefixFiles::Open(const std::string& folder, const SnapshotIdentity& identity, const Session& like,
                                      uint64_t budget, Logger& logger) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return Fail(ErrorCode::kIo, folder, ": cannot make this folder: ", failed.message());
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (fd >= 0) close(fd);
    return Fail(ErrorCode::kUnavailable, folder,
                ": expected to be alone with it, got another process that has it open");
  }
  PrefixFiles files(folder, identity, fd, budget, logger);
  files.ReadFolder(like);
  files.MakeRoom(0, files.latest());
  return files;
}

PrefixFiles::PrefixFiles(PrefixFiles&& other) noexcept
    : folder_(std::move(other.folder_)),
      identity_(std::move(other.identity_)),
      lock_(std::exchange(other.lock_, -1)),
      budget_(other.budget_),
      logger_(other.logger_),
      entries_(std::move(other.entries_)) {}

PrefixFiles::~PrefixFiles() {
  if (lock_ >= 0) close(lock_);
}

// What is half, foreign or damaged goes: nobody could use it.
void PrefixFiles::ReadFolder(const Session& like) {
  std::vector<std::pair<fs::file_time_type, std::string>> stems;
  std::vector<fs::path> others;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    std::error_code gone;
    if (path.extension() == ".state")
      stems.emplace_back(fs::last_write_time(path, gone), (path.parent_path() / path.stem()).string());
    else
      others.push_back(path);
  }
  std::sort(stems.begin(), stems.end());
  for (const auto& [time, stem] : stems) {
    const SnapshotFiles files(stem, identity_);
    Result<SnapshotFiles::Summary> kept = files.ReadSummary(like);
    if (kept)
      entries_.push_back({stem, std::move(kept->tokens), kept->has_logits, FileBytes(files), entries_.size() + 1});
    else
      files.Remove();
  }
  for (const fs::path& path : others) {
    const auto known = [&](const Entry& e) { return path == SnapshotFiles(e.stem, identity_).LatentsPath(); };
    if (std::none_of(entries_.begin(), entries_.end(), known)) fs::remove(path, error);
  }
}

uint64_t PrefixFiles::latest() const {
  uint64_t latest = 0;
  for (const Entry& entry : entries_) latest = std::max(latest, entry.used);
  return latest;
}

uint64_t PrefixFiles::bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes;
  return sum;
}

void PrefixFiles::Remove(size_t entry) {
  SnapshotFiles(entries_[entry].stem, identity_).Remove();
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(entry));
}

bool PrefixFiles::MakeRoom(uint64_t room, uint64_t used) {
  uint64_t stays = 0;
  for (const Entry& entry : entries_) stays += entry.used > used ? entry.bytes : 0;
  if (stays + room > budget_) return false;
  while (bytes() + room > budget_) {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                         [](const Entry& a, const Entry& b) { return a.used < b.used; });
    Remove(static_cast<size_t>(oldest - entries_.begin()));
  }
  return true;
}

// Times of files keep the order of use over a restart: what is written late but was used earlier becomes older than
// those that were used after it.
void PrefixFiles::SetTime(const Entry& entry) const {
  fs::file_time_type time = fs::file_time_type::clock::now();
  for (const Entry& other : entries_) {
    std::error_code error;
    const auto theirs = fs::last_write_time(SnapshotFiles(other.stem, identity_).StatePath(), error);
    if (!error && other.used > entry.used) time = std::min(time, theirs - std::chrono::milliseconds(1));
  }
  std::error_code ignored;
  fs::last_write_time(SnapshotFiles(entry.stem, identity_).StatePath(), time, ignored);
}

bool PrefixFiles::Restore(std::span<const TokenId> tokens, int64_t than, Session& session, std::span<float> logits,
                          uint64_t used) {
  for (;;) {
    size_t best = entries_.size();
    auto longest = static_cast<size_t>(than);
    for (size_t i = 0; i < entries_.size(); ++i) {
      const std::vector<TokenId>& kept = entries_[i].tokens;
      if (kept.size() <= longest || kept.size() > tokens.size()) continue;
      if (kept.size() == tokens.size() && !entries_[i].has_logits) continue;
      if (!std::equal(kept.begin(), kept.end(), tokens.begin())) continue;
      best = i;
      longest = kept.size();
    }
    if (best == entries_.size()) return false;
    Entry& entry = entries_[best];
    const SnapshotFiles files(entry.stem, identity_);
    const bool all = longest == tokens.size();
    std::vector<float> kept_logits;
    Status loaded = files.Load(tokens, session, all ? &kept_logits : nullptr);
    if (loaded && all && kept_logits.size() != logits.size())
      loaded = Fail(ErrorCode::kCorrupt, files.StatePath(), ": expected ", logits.size(), " logits, got ",
                    kept_logits.size());
    if (loaded) {
      if (all) std::copy(kept_logits.begin(), kept_logits.end(), logits.begin());
      entry.used = used;
      SetTime(entry);
      return true;
    }
    logger_->Warn(Cat("prefix cache: a kept beginning is read again: ", loaded.error().message()));
    session.Reset();
    Remove(best);
    than = 0;  // the session is empty now: any other one is better
  }
}

bool PrefixFiles::Has(std::span<const TokenId> tokens, bool with_logits) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return (e.has_logits || !with_logits) && std::equal(e.tokens.begin(), e.tokens.end(), tokens.begin(), tokens.end());
  });
}

void PrefixFiles::Touch(std::span<const TokenId> tokens, uint64_t used) {
  for (Entry& entry : entries_) {
    if (!std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end())) continue;
    entry.used = used;
    SetTime(entry);
  }
}

Status PrefixFiles::Keep(const SessionCheckpoint& checkpoint, uint64_t used) {
  if (checkpoint.tokens.empty() || Has(checkpoint.tokens, !checkpoint.logits.empty())) return {};
  const uint64_t least =
      checkpoint.state.kda_bytes() + checkpoint.state.latent_bytes() + std::span(checkpoint.logits).size_bytes();
  if (!MakeRoom(least, used)) return {};
  const SnapshotFiles files(StemFor(folder_, checkpoint.tokens), identity_);
  const auto same_name = [&](const Entry& e) { return e.stem + ".state" == files.StatePath(); };
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), same_name), entries_.end());
  Status saved = files.Save(checkpoint);
  if (!saved) {
    files.Remove();
    return saved;
  }
  entries_.push_back(
      {StemFor(folder_, checkpoint.tokens), checkpoint.tokens, !checkpoint.logits.empty(), FileBytes(files), used});
  SetTime(entries_.back());
  return {};
}

}  // namespace deltafin
