#include "cache/expert_usage.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/integrity.h"
#include "checkpoint/leftovers.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "DFINUSE1";
constexpr std::string_view kNameStart = "expert-usage-";
constexpr std::string_view kNameEnd = ".bin";
constexpr uint32_t kFadeAt = 1u << 30;
constexpr uint64_t kMaxFileBytes = 64u << 20;

struct Head {
  uint64_t fingerprint;
  int64_t layers, experts;
};

template <typename T>
std::string_view BytesOf(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

// The files that were written longest ago go first.
void Tidy(const std::string& folder) {
  RemoveLeftovers(folder, kNameStart);
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kNameStart) || !name.ends_with(kNameEnd)) continue;
    std::error_code gone;
    const auto time = it->last_write_time(gone);
    if (!gone) found.emplace_back(time, it->path());
  }
  std::sort(found.rbegin(), found.rend());
  for (size_t i = ExpertUsage::kFilesKept; i < found.size(); ++i) fs::remove(found[i].second, error);
}

}  // namespace

ExpertUsage::ExpertUsage(int64_t layers, int64_t experts, uint64_t fingerprint)
    : layers_(layers),
      experts_(experts),
      fingerprint_(fingerprint),
      counts_(static_cast<size_t>(layers) * static_cast<size_t>(experts)) {}

void ExpertUsage::Add(int32_t layer, std::span<const int32_t> experts) {
  DFIN_CHECK(layer >= 0 && layer < layers_, "no such layer");
  uint32_t* counts = counts_.data() + static_cast<size_t>(layer) * static_cast<size_t>(experts_);
  bool fade = false;
  for (const int32_t e : experts) {
    DFIN_CHECK(e >= 0 && e < experts_, "no such expert");
    fade = fade || ++counts[e] >= kFadeAt;
  }
  total_ += experts.size();
  if (fade) Fade();
}

uint32_t ExpertUsage::Count(ExpertKey key) const {
  return counts_[static_cast<size_t>(key.layer) * static_cast<size_t>(experts_) + static_cast<size_t>(key.expert)];
}

std::vector<ExpertKey> ExpertUsage::MostUsed(std::span<const int32_t> layers, int64_t most) const {
  const bool all_fit = static_cast<int64_t>(layers.size()) * experts_ <= most;
  std::vector<ExpertKey> keys;
  for (const int32_t layer : layers)
    for (int32_t expert = 0; expert < experts_; ++expert)
      if (all_fit || Count({layer, expert}) > 0) keys.push_back({layer, expert});
  std::stable_sort(keys.begin(), keys.end(), [this](ExpertKey a, ExpertKey b) { return Count(a) > Count(b); });
  if (static_cast<int64_t>(keys.size()) > most) keys.resize(static_cast<size_t>(most));
  return keys;
}

void ExpertUsage::Fade() {
  for (uint32_t& count : counts_) count /= 2;
  total_ = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

std::string ExpertUsage::ToBytes() const {
  const Head head{fingerprint_, layers_, experts_};
  std::string body(BytesOf(&head, 1));
  body += BytesOf(counts_.data(), counts_.size());
  const uint64_t hash = Hash64(body);
  std::string bytes(kMagic);
  bytes += BytesOf(&hash, 1);
  return bytes + body;
}

bool ExpertUsage::AddBytes(std::string_view bytes) {
  const size_t body_at = kMagic.size() + sizeof(uint64_t);
  if (bytes.size() != body_at + sizeof(Head) + counts_.size() * sizeof(uint32_t) || !bytes.starts_with(kMagic))
    return false;
  uint64_t hash = 0;
  std::memcpy(&hash, bytes.data() + kMagic.size(), sizeof hash);
  if (hash != Hash64(bytes.substr(body_at))) return false;
  Head head;
  std::memcpy(&head, bytes.data() + body_at, sizeof head);
  if (head.fingerprint != fingerprint_ || head.layers != layers_ || head.experts != experts_) return false;
  const char* at = bytes.data() + body_at + sizeof head;
  bool fade = false;
  for (uint32_t& count : counts_) {
    uint32_t more = 0;
    std::memcpy(&more, at, sizeof more);
    at += sizeof more;
    const uint64_t sum = std::min<uint64_t>(uint64_t{count} + more, 0xffffffffu);
    total_ += sum - count;
    count = static_cast<uint32_t>(sum);
    fade = fade || count >= kFadeAt;
  }
  while (fade) {
    Fade();
    fade = std::any_of(counts_.begin(), counts_.end(), [](uint32_t count) { return count >= kFadeAt; });
  }
  return true;
}

std::string ExpertUsage::Path(const std::string& state_folder) const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string path = state_folder + "/";
  path += kNameStart;
  for (int shift = 60; shift >= 0; shift -= 4) path += kDigits[fingerprint_ >> shift & 15];
  return path.append(kNameEnd);
}

bool ExpertUsage::Load(const std::string& state_folder) {
  const Result<std::string> bytes = ReadWholeFile(Path(state_folder), kMaxFileBytes);
  return bytes && AddBytes(*bytes);
}

Status ExpertUsage::Save(const std::string& state_folder) const {
  std::error_code error;
  fs::create_directories(state_folder, error);
  if (error) return Fail(ErrorCode::kIo, state_folder, ": cannot make this folder: ", error.message());
  const std::string bytes = ToBytes();
  DFIN_TRY_VOID(WriteFileAtomically(Path(state_folder), std::as_bytes(std::span(bytes))));
  Tidy(state_folder);
  return {};
}

}  // namespace deltafin
