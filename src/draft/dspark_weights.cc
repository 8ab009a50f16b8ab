#include "draft/dspark_weights.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace deltafin {
namespace {

Status CheckRegular(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0)
    return Fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo, path, ": ",
                std::strerror(errno));
  if (S_ISREG(info.st_mode)) return {};
  return Fail(ErrorCode::kUnsupported, path, ": expected a regular file, got ",
              S_ISLNK(info.st_mode) ? "a symbolic link: copy the file here" : "something else");
}

}  // namespace

Result<DsparkWeights> DsparkWeights::Open(const std::string& folder, const ModelSpec& target) {
  DsparkWeights weights;
  const std::string config = folder + "/config.json", file = folder + "/model.safetensors";
  DFIN_TRY_VOID(CheckRegular(config));
  DFIN_TRY_VOID(CheckRegular(file));
  DFIN_TRY(const std::string json, ReadDraftConfig(config));
  DFIN_TRY(weights.config_, DsparkConfig::Parse(json, config, target));
  DFIN_TRY(weights.tensors_, DraftTensors::Open({file}, DsparkTensors(weights.config_), "DSpark"));
  return weights;
}

TensorView DsparkWeights::Layer(int64_t layer, std::string_view name) const {
  return Get(Cat("layers.", layer, ".", name, ".weight"));
}

}  // namespace deltafin
