#include "checkpoint/dense_set.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/json.h"
#include "checkpoint/hex.h"
#include "spec/tensor_table.h"
#include "tensor/bf12.h"

namespace deltafin {
namespace {

constexpr std::string_view kAgain = "run `deltafin pack --dense` again";

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

Result<DenseManifest> ReadManifest(const std::string& folder) {
  const std::string path = Cat(folder, "/", kDenseManifestName);
  if (!Exists(folder)) return Fail(ErrorCode::kNotFound, folder, ": no such folder: expected packed dense weights");
  if (!Exists(path) && Exists(Cat(folder, "/", kDensePartialName)))
    return Fail(ErrorCode::kCorrupt, folder,
                ": expected packed dense weights, got those of an unfinished pack: ", kAgain,
                " with this folder to finish it");
  if (!Exists(path))
    return Fail(ErrorCode::kNotFound, path,
                ": missing: expected packed dense weights in this folder: "
                "`deltafin pack --dense --model DIR --to DIR` writes them");
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxDenseManifestBytes));
  DFIN_TRY(DenseManifest manifest, DenseManifest::FromText(text, path));
  if (!manifest.complete())
    return Fail(ErrorCode::kCorrupt, path, ": expected ", manifest.layers + 1, " units, got ", manifest.units.size(),
                ": ", kAgain);
  return manifest;
}

}  // namespace

bool MayBeBf12(std::string_view name, DType dtype, const Shape& shape) {
  if (dtype != DType::kBF16 || shape.rank() != 2 || shape[0] < 2) return false;
  // Attention on the latent reads the rows of kv_b_proj one by one; the embedding table is read a row a token.
  if (name.ends_with(".kv_b_proj.weight") || name == kEmbedTokens) return false;
  return Bf12MayShrink(shape[0], shape[1]);
}

std::vector<std::string> DenseUnitNames(const Checkpoint& checkpoint, int32_t unit) {
  const auto layers = static_cast<int32_t>(checkpoint.spec().layers.size());
  std::vector<std::string> names = checkpoint.DenseNames(unit == layers ? -1 : unit);
  std::erase(names, kEmbedTokens);
  std::sort(names.begin(), names.end());
  return names;
}

Status CheckDenseUnit(const DenseUnit& unit, const Checkpoint& checkpoint, const std::string& what) {
  const auto other = [&](const auto&... parts) {
    return Fail(ErrorCode::kCorrupt, what, ": unit ", unit.unit, ": ", parts...,
                ": packed from another model: ", kAgain, " for this one");
  };
  const std::vector<std::string> names = DenseUnitNames(checkpoint, unit.unit);
  if (names.size() != unit.tensors.size())
    return other("expected ", names.size(), " tensors, got ", unit.tensors.size());
  std::vector<const DenseTensor*> tensors;
  for (const DenseTensor& tensor : unit.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  for (size_t i = 0; i < names.size(); ++i) {
    const DenseTensor& tensor = *tensors[i];
    const TensorPlace& place = checkpoint.Dense(names[i]);
    if (tensor.name != names[i]) return other("expected tensor '", names[i], "', got '", tensor.name, "'");
    const bool as_stored =
        tensor.dtype == place.dtype || (tensor.dtype == DType::kBf12 && MayBeBf12(names[i], place.dtype, place.shape));
    if (!as_stored || !(tensor.shape == place.shape))
      return other(tensor.name, ": expected ", ToString(place.dtype), " ", ToString(place.shape), ", got ",
                   ToString(tensor.dtype), " ", ToString(tensor.shape));
  }
  return {};
}

Result<DenseSet> DenseSet::Open(const std::string& folder, const Checkpoint& checkpoint,
                                const ReadsBuffered& reads_buffered) {
  DenseSet set;
  set.folder_ = folder;
  DFIN_TRY(set.manifest_, ReadManifest(folder));
  const std::string what = Cat(folder, "/", kDenseManifestName);
  const auto layers = static_cast<int32_t>(checkpoint.spec().layers.size());
  if (set.manifest_.layers != layers)
    return Fail(ErrorCode::kCorrupt, what, ": expected ", layers, " layers, got ", set.manifest_.layers,
                ": packed from another model: ", kAgain, " for this one");
  for (const DenseUnit& unit : set.manifest_.units) {
    DFIN_TRY_VOID(CheckDenseUnit(unit, checkpoint, what));
    const std::string path = folder + "/" + set.manifest_.FileName(unit.unit);
    DFIN_TRY(DirectFile file,
             reads_buffered && reads_buffered(folder) ? DirectFile::OpenBuffered(path) : DirectFile::Open(path));
    if (file.size() != unit.bytes)
      return Fail(ErrorCode::kCorrupt, path, ": expected ", unit.bytes, " bytes, got ", file.size(), ": ", kAgain);
    set.files_.push_back(std::move(file));
  }
  return set;
}

uint64_t DenseSet::alignment() const {
  uint64_t alignment = kBf12Alignment;
  for (const DirectFile& file : files_) alignment = std::max(alignment, file.alignment());
  return alignment;
}

Status DenseSet::CheckModel(uint64_t model_id) const {
  if (manifest_.model_id == model_id) return {};
  return Fail(ErrorCode::kCorrupt, "--dense: ", folder_, ": expected dense weights of model ", ToHex(model_id),
              ", got those of model ", ToHex(manifest_.model_id),
              ": name the folder that was packed from this --model, or ", kAgain);
}

}  // namespace deltafin
