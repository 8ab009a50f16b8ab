#include "setup/model_source.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "setup/file_check.h"

namespace deltafin {
namespace {

class HubSource final : public ModelSource {
 public:
  explicit HubSource(HubClient& hub) : hub_(hub) {}

  Json Identity() const override {
    Json identity;
    identity["repo"] = hub_.options().repo;
    identity["revision"] = hub_.options().revision;
    return identity;
  }
  std::string Name() const override { return hub_.options().repo + " on " + hub_.options().endpoint; }
  Result<HubListing> List(const std::string& commit, CancelToken cancel) override { return hub_.List(commit, cancel); }

  std::string ChangedSince(const std::string& commit, CancelToken cancel) override {
    const Result<std::string> now = hub_.ResolveRevision(cancel);
    if (!now || *now == commit) return "";
    return Cat(hub_.options().revision, " of ", hub_.options().repo, " is now commit ", *now,
               "; this folder stays with commit ", commit);
  }
  Status FetchRange(const HubFile& file, uint64_t offset, uint64_t length, const RangeSink& sink,
                    CancelToken cancel) override {
    return hub_.FetchRange(file, offset, length, sink, cancel);
  }
  Status FetchWhole(const HubFile& file, const RangeSink& sink, CancelToken cancel) override {
    return hub_.FetchWhole(file, sink, cancel);
  }
  Result<HubFile> WithChecksum(const HubFile& file, const std::function<void()>&, CancelToken) override { return file; }

 private:
  HubClient& hub_;
};

}  // namespace

std::unique_ptr<ModelSource> MakeHubSource(HubClient& hub) { return std::make_unique<HubSource>(hub); }

Result<std::string> FetchText(ModelSource& source, const HubFile& file, uint64_t max_bytes, CancelToken cancel) {
  if (file.size > max_bytes)
    return Fail(ErrorCode::kCorrupt, file.path, ": expected at most ", max_bytes, " bytes, got ", file.size);
  std::string text;
  const RangeSink sink = [&](uint64_t offset, Bytes bytes) -> Status {
    text.resize(static_cast<size_t>(offset));
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  constexpr int kTries = 3;
  for (int i = 1;; ++i) {
    DFIN_TRY_VOID(source.FetchWhole(file, sink, cancel));
    Status right = CheckBytes(std::as_bytes(std::span(text)), file);
    if (right) return text;
    if (i == kTries) return FailWith(std::move(right), source.Name());
  }
}

}  // namespace deltafin
