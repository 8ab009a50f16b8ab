#include "io/drive_profile.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "io/drive_list.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr uint64_t kMaxFileBytes = 1u << 20;
constexpr size_t kMaxEntries = 4096;  // of a list in a file that may be damaged
// Faster than any drive; keeps sums of damaged numbers finite.
constexpr double kMaxRate = 1e15;

// FNV-1a: only tells apart identities whose letters a file name cannot hold.
uint64_t Fnv(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

class Reader {
 public:
  Reader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  double Number(const char* name, double max) {
    const auto it = object_.find(name);
    if (it == object_.end() || !it->is_number()) return Refuse(name, "a number");
    const double value = it->get<double>();
    if (!std::isfinite(value) || value < 0 || value > max) return Refuse(name, "a number in range");
    return value;
  }
  int64_t Whole(const char* name, int64_t max) {
    const auto it = object_.find(name);
    if (it == object_.end() || !it->is_number_integer()) return static_cast<int64_t>(Refuse(name, "a whole number"));
    const int64_t value = it->get<int64_t>();
    if (value < 0 || value > max) return static_cast<int64_t>(Refuse(name, "a whole number in range"));
    return value;
  }
  bool Flag(const char* name) {
    const auto it = object_.find(name);
    if (it == object_.end() || !it->is_boolean()) return Refuse(name, "true or false") != 0;
    return it->get<bool>();
  }
  std::string Text(const char* name) {
    const auto it = object_.find(name);
    if (it == object_.end() || !it->is_string()) {
      Refuse(name, "a text");
      return "";
    }
    return it->get<std::string>();
  }
  const Json& List(const char* name) {
    static const Json kEmpty = Json::array();
    const auto it = object_.find(name);
    if (it == object_.end() || !it->is_array() || it->size() > kMaxEntries) {
      Refuse(name, "a list");
      return kEmpty;
    }
    return *it;
  }
  double Refuse(const char* name, const char* expected) {
    if (status_) status_ = Fail(ErrorCode::kCorrupt, what_, ": ", name, ": expected ", expected);
    return 0;
  }
  Status TakeStatus() { return std::move(status_); }

 private:
  const Json& object_;
  std::string what_;
  Status status_;
};

constexpr int64_t kMaxBlock = int64_t{1} << 40;

Result<DriveMeasurement> ParseMeasurement(const Json& json, const std::string& what) {
  Reader read(json, what);
  DriveMeasurement m;
  m.block_bytes = static_cast<uint64_t>(read.Whole("block_bytes", kMaxBlock));
  m.depth = static_cast<int>(read.Whole("depth", 1 << 20));
  m.direct = read.Flag("direct");
  m.bytes_per_second = read.Number("bytes_per_second", kMaxRate);
  m.latency_p50_seconds = read.Number("latency_p50_seconds", 1e9);
  m.latency_p99_seconds = read.Number("latency_p99_seconds", 1e9);
  DFIN_TRY_VOID(read.TakeStatus());
  return m;
}

Result<DriveProfile::Together> ParseTogether(const Json& json, const std::string& what) {
  Reader read(json, what);
  DriveProfile::Together together;
  together.bytes_per_second = read.Number("bytes_per_second", kMaxRate);
  for (const Json& other : read.List("others")) {
    if (!other.is_string()) read.Refuse("others", "texts");
    if (other.is_string()) together.others.push_back(other.get<std::string>());
  }
  DFIN_TRY_VOID(read.TakeStatus());
  return together;
}

Status WriteWhole(int fd, const std::string& text, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Fail(ErrorCode::kIo, path, ": cannot write: ", std::strerror(n < 0 ? errno : ENOSPC));
    done += static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) return Fail(ErrorCode::kIo, path, ": cannot flush: ", std::strerror(errno));
  return {};
}

// src/checkpoint has this for files of any size; io stands below it.
Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string part = Cat(path, ".part", getpid());
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kIo, path, ": cannot create: ", std::strerror(errno));
  Status status = WriteWhole(fd, text, path);
  if (close(fd) != 0 && status) status = Fail(ErrorCode::kIo, path, ": cannot close: ", std::strerror(errno));
  if (status && std::rename(part.c_str(), path.c_str()) != 0)
    status = Fail(ErrorCode::kIo, path, ": cannot rename ", part, ": ", std::strerror(errno));
  if (!status) unlink(part.c_str());
  return status;
}

void RemoveOldest(const std::string& folder) {
  std::error_code failed;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".json") files.emplace_back(fs::last_write_time(it->path(), failed), it->path());
  if (files.size() <= kMaxDriveProfiles) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - kMaxDriveProfiles; ++i) fs::remove(files[i].second, failed);
}

// A folder that is yet to be made will lie on the drive of the nearest one above it.
std::string NearestFolder(const std::string& folder) {
  std::error_code failed;
  fs::path path = fs::absolute(folder, failed);
  while (!failed && !fs::exists(path, failed) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

// What the drive delivered together with exactly `others`; 0 when that was not measured.
double TogetherRate(const DriveProfile& profile, const std::set<std::string>& others) {
  for (const DriveProfile::Together& together : profile.together)
    if (std::set<std::string>(together.others.begin(), together.others.end()) == others)
      return together.bytes_per_second;
  return 0;
}

}  // namespace

Result<std::string> DriveIdentity(const std::string& folder) {
  DFIN_TRY(const MountedDrive drive, DriveOfFolder(folder));
  return drive.identity;
}

std::string DriveProfilePath(const std::string& state_folder, const std::string& identity) {
  constexpr size_t kLongest = 80;
  std::string name;
  for (const char c : identity.substr(0, kLongest)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    name += plain ? c : '_';
  }
  return Cat(state_folder, "/drives/", name, "-", std::hex, Fnv(identity), ".json");
}

Json DriveGridJson(const std::vector<DriveMeasurement>& grid) {
  Json out = Json::array();
  for (const DriveMeasurement& m : grid) {
    Json cell;
    cell["block_bytes"] = m.block_bytes;
    cell["depth"] = m.depth;
    cell["direct"] = m.direct;
    cell["bytes_per_second"] = m.bytes_per_second;
    cell["latency_p50_seconds"] = m.latency_p50_seconds;
    cell["latency_p99_seconds"] = m.latency_p99_seconds;
    out.push_back(std::move(cell));
  }
  return out;
}

std::string DriveProfileText(const DriveProfile& profile) {
  Json out;
  out["version"] = kVersion;
  out["identity"] = profile.identity;
  out["device"] = profile.device;
  out["model"] = profile.model;
  out["measured_unix_seconds"] = profile.measured_unix_seconds;
  out["bytes_per_second"] = profile.bytes_per_second;
  out["block_bytes"] = profile.block_bytes;
  out["depth"] = profile.depth;
  out["direct"] = profile.direct;
  out["grid"] = DriveGridJson(profile.grid);
  out["together"] = Json::array();
  for (const DriveProfile::Together& together : profile.together) {
    Json entry;
    entry["others"] = together.others;
    entry["bytes_per_second"] = together.bytes_per_second;
    out["together"].push_back(std::move(entry));
  }
  return DumpJson(out) + "\n";
}

Result<DriveProfile> ParseDriveProfile(const std::string& text, const std::string& what) {
  DFIN_TRY(const Json json, ParseJson(text, what));
  if (!json.is_object()) return Fail(ErrorCode::kCorrupt, what, ": expected an object");
  Reader read(json, what);
  if (read.Whole("version", 1 << 30) != kVersion) {
    DFIN_TRY_VOID(read.TakeStatus());
    return Fail(ErrorCode::kUnsupported, what, ": version ", json["version"].get<int64_t>(), ": expected ", kVersion);
  }
  DriveProfile profile;
  profile.identity = read.Text("identity");
  profile.device = read.Text("device");
  profile.model = read.Text("model");
  profile.measured_unix_seconds = read.Whole("measured_unix_seconds", int64_t{1} << 40);
  profile.bytes_per_second = read.Number("bytes_per_second", kMaxRate);
  profile.block_bytes = static_cast<uint64_t>(read.Whole("block_bytes", kMaxBlock));
  profile.depth = static_cast<int>(read.Whole("depth", 1 << 20));
  profile.direct = read.Flag("direct");
  for (const Json& cell : read.List("grid")) {
    DFIN_TRY(profile.grid.emplace_back(), ParseMeasurement(cell, what + ": grid"));
  }
  for (const Json& entry : read.List("together")) {
    DFIN_TRY(profile.together.emplace_back(), ParseTogether(entry, what + ": together"));
  }
  DFIN_TRY_VOID(read.TakeStatus());
  return profile;
}

std::optional<DriveProfile> LoadDriveProfile(const std::string& state_folder, const std::string& identity,
                                             std::string* problem) {
  if (state_folder.empty()) return std::nullopt;
  const std::string path = DriveProfilePath(state_folder, identity);
  const auto ignore = [&](const std::string& why) {
    if (problem != nullptr) *problem = why;
    return std::nullopt;
  };
  const Result<std::string> text = ReadWholeFile(path, kMaxFileBytes);
  if (!text) return text.error().code() == ErrorCode::kNotFound ? std::nullopt : ignore(text.error().message());
  Result<DriveProfile> profile = ParseDriveProfile(*text, path);
  if (!profile) return ignore(profile.error().message());
  if (profile->identity != identity)
    return ignore(Cat(path, ": is of another drive: expected ", identity, ", got ", profile->identity));
  return std::move(*profile);
}

Status StoreDriveProfile(const std::string& state_folder, const DriveProfile& profile) {
  const std::string path = DriveProfilePath(state_folder, profile.identity);
  const fs::path folder = fs::path(path).parent_path();
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return Fail(ErrorCode::kIo, folder.string(), ": cannot be made: ", failed.message());
  DFIN_TRY_VOID(ReplaceFile(path, DriveProfileText(profile)));
  RemoveOldest(folder.string());
  return {};
}

bool ProfiledBuffered(const std::string& state_folder, const std::string& folder) {
  const Result<std::string> identity = DriveIdentity(folder);
  if (!identity) return false;
  const std::optional<DriveProfile> profile = LoadDriveProfile(state_folder, *identity);
  return profile && !profile->direct;
}

std::vector<double> ProfiledRates(const std::string& state_folder, const std::vector<std::string>& folders) {
  std::vector<std::string> identities;
  std::map<std::string, int> sharing;  // folders a drive
  for (const std::string& folder : folders) {
    const Result<std::string> identity = DriveIdentity(NearestFolder(folder));
    identities.push_back(identity ? *identity : "");
    ++sharing[identities.back()];
  }
  std::vector<double> alone(folders.size()), together(folders.size());
  for (size_t i = 0; i < folders.size(); ++i) {
    if (identities[i].empty()) continue;
    const std::optional<DriveProfile> profile = LoadDriveProfile(state_folder, identities[i]);
    if (!profile) continue;
    std::set<std::string> others(identities.begin(), identities.end());
    others.erase(identities[i]);
    others.erase("");
    alone[i] = profile->bytes_per_second / sharing[identities[i]];
    together[i] = others.empty() ? alone[i] : TogetherRate(*profile, others) / sharing[identities[i]];
  }
  // Rates of one kind only: a mixture would compare a drive that was held back by its neighbours with one that was not.
  const bool all_together = std::all_of(together.begin(), together.end(), [](double rate) { return rate > 0; });
  return all_together ? together : alone;
}

}  // namespace deltafin
