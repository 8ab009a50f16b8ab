#include "checkpoint/dense_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/hex.h"
#include "checkpoint/manifest_text.h"
#include "tensor/bf12.h"

namespace deltafin {
namespace {

constexpr ManifestKind kKind = {"deltafin-dense", 1};
constexpr int64_t kMaxLayers = int64_t{1} << 16;
constexpr size_t kMaxTensors = 1024;  // of a unit
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr uint64_t kMaxUnitBytes = uint64_t{1} << 42;

Json ToJson(const DenseTensor& tensor) {
  Json shape = Json::array();
  for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
  Json json = {{"name", tensor.name},
               {"dtype", ToString(tensor.dtype)},
               {"shape", std::move(shape)},
               {"offset", tensor.offset},
               {"bytes", tensor.bytes}};
  if (tensor.dtype == DType::kBf12) {
    json["whole_rows"] = tensor.whole_rows;
    json["escapes"] = tensor.escapes;
  }
  return json;
}

DType ReadDType(ManifestReader& in, std::string& spelled) {
  spelled = in.Text("dtype", 8);
  for (const DType dtype : {DType::kBf12, DType::kBF16, DType::kF32})
    if (spelled == ToString(dtype)) return dtype;
  return DType::kU8;
}

DenseTensor ReadTensor(ManifestReader& in) {
  DenseTensor tensor;
  std::string spelled;
  tensor.name = in.Text("name", 255);
  tensor.dtype = ReadDType(in, spelled);
  for (const int64_t dim : in.Numbers("shape", Shape::kMaxRank, kMaxDim)) tensor.shape.Append(dim);
  tensor.offset = in.Number("offset", 0, kMaxUnitBytes);
  tensor.bytes = in.Number("bytes", 1, kMaxUnitBytes);
  if (tensor.dtype == DType::kBf12) {
    tensor.whole_rows = in.Int("whole_rows", 0, kMaxDim);
    tensor.escapes = in.Number("escapes", 0, UINT32_MAX);
  }
  return tensor;
}

// What the members promise each other.
class Consistency {
 public:
  Consistency(const DenseManifest& manifest, const std::string& what) : m_(manifest), what_(what) {}

  Status Check() const {
    int64_t next = 0;
    for (const DenseUnit& unit : m_.units) {
      if (unit.unit < next || unit.unit > m_.layers)
        return Bad("unit", Cat("one from ", next, " to ", m_.layers), unit.unit);
      next = unit.unit + 1;
      DFIN_TRY_VOID(CheckUnit(unit));
    }
    return {};
  }

 private:
  template <typename Expected, typename Got>
  Failure Bad(std::string_view where, const Expected& expected, const Got& got) const {
    return Fail(ErrorCode::kCorrupt, what_, ": ", where, ": expected ", expected, ", got ", got);
  }

  Status CheckUnit(const DenseUnit& unit) const {
    if (unit.bytes % kDensePage != 0) return Bad("bytes", "whole pages", unit.bytes);
    uint64_t end = 0;
    for (const DenseTensor& tensor : unit.tensors) {
      if (tensor.offset < end || tensor.offset % kBf12Alignment != 0)
        return Bad(tensor.name, Cat("a multiple of ", kBf12Alignment, " from ", end, " on"), tensor.offset);
      if (tensor.offset > unit.bytes || tensor.bytes > unit.bytes - tensor.offset)
        return Bad(tensor.name, Cat("it to end within ", unit.bytes), Cat(tensor.offset, " + ", tensor.bytes));
      DFIN_TRY_VOID(CheckSize(tensor));
      end = tensor.offset + tensor.bytes;
    }
    return {};
  }

  Status CheckSize(const DenseTensor& tensor) const {
    if (tensor.dtype == DType::kU8) return Bad(tensor.name, "a dtype of BF12, BF16 or F32", "another");
    uint64_t elements = 1;
    for (int i = 0; i < tensor.shape.rank(); ++i)
      if (!MultiplyChecked(elements, static_cast<uint64_t>(tensor.shape[i]), &elements) || elements > kMaxUnitBytes)
        return Bad(tensor.name, "fewer elements", ToString(tensor.shape));
    if (tensor.dtype != DType::kBf12) {
      const uint64_t bytes = elements * static_cast<uint64_t>(ByteSize(tensor.dtype));
      if (bytes != tensor.bytes) return Bad(tensor.name, Cat(bytes, " bytes"), tensor.bytes);
      return {};
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    if (tensor.shape.rank() != 2 || !Bf12MayShrink(rows, columns))
      return Bad(tensor.name, "a matrix that is smaller in 12 bits", ToString(tensor.shape));
    if (tensor.bytes < Bf12View::RowsAt(rows) || tensor.bytes > Bf12MostBytes(rows, columns))
      return Bad(tensor.name, Cat("at most ", Bf12MostBytes(rows, columns), " bytes"), tensor.bytes);
    if (tensor.whole_rows > rows) return Bad(tensor.name, Cat("at most ", rows, " whole rows"), tensor.whole_rows);
    return {};
  }

  const DenseManifest& m_;
  const std::string& what_;
};

}  // namespace

const DenseUnit* DenseManifest::Find(int32_t unit) const {
  for (const DenseUnit& u : units)
    if (u.unit == unit) return &u;
  return nullptr;
}

uint64_t DenseManifest::bytes() const {
  uint64_t sum = 0;
  for (const DenseUnit& unit : units) sum += unit.bytes;
  return sum;
}

std::string DenseManifest::FileName(int32_t unit) const {
  if (unit == layers) return Cat(kDensePrefix, "-head.bin");
  const std::string number = std::to_string(unit);
  return Cat(kDensePrefix, "-layer-", std::string(3 - std::min<size_t>(3, number.size()), '0'), number, ".bin");
}

std::string DenseManifest::ToText() const {
  Json list = Json::array();
  for (const DenseUnit& unit : units) {
    Json tensors = Json::array();
    for (const DenseTensor& tensor : unit.tensors) tensors.push_back(ToJson(tensor));
    list.push_back({{"unit", unit.unit},
                    {"file", FileName(unit.unit)},
                    {"bytes", unit.bytes},
                    {"hash", ToHex(unit.hash)},
                    {"tensors", std::move(tensors)}});
  }
  Json json;
  json["format"] = kKind.format;
  json["version"] = kKind.version;
  json["model_id"] = ToHex(model_id);
  json["layers"] = layers;
  json["units"] = std::move(list);
  return ManifestText(json);
}

Result<DenseManifest> DenseManifest::FromText(std::string_view text, const std::string& what) {
  if (text.size() > kMaxDenseManifestBytes)
    return Fail(ErrorCode::kCorrupt, what, ": expected at most ", kMaxDenseManifestBytes, " bytes, got ", text.size());
  DFIN_TRY(const Json json, ParseManifest(text, kKind, what));
  ManifestReader in(json, what, "");
  DenseManifest m;
  m.model_id = in.Hex("model_id");
  m.layers = static_cast<int32_t>(in.Int("layers", 1, kMaxLayers));
  std::string misnamed;
  in.List("units", 0, static_cast<size_t>(m.layers) + 1, [&](ManifestReader& from) {
    DenseUnit unit;
    unit.unit = static_cast<int32_t>(from.Int("unit", 0, m.layers));
    const std::string file = from.FileName("file");
    if (from.ok() && file != m.FileName(unit.unit)) misnamed = file;
    unit.bytes = from.Number("bytes", 1, kMaxUnitBytes);
    unit.hash = from.Hex("hash");
    from.List("tensors", 1, kMaxTensors, [&](ManifestReader& tensor) { unit.tensors.push_back(ReadTensor(tensor)); });
    m.units.push_back(std::move(unit));
  });
  DFIN_TRY_VOID(in.TakeStatus());
  if (!misnamed.empty())
    return Fail(ErrorCode::kCorrupt, what, ": file: expected the name of its unit's file, got '", misnamed, "'");
  DFIN_TRY_VOID(Consistency(m, what).Check());
  return m;
}

}  // namespace deltafin
