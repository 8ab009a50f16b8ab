#include "checkpoint/safetensors_writer.h"

#include <unordered_set>
#include <utility>

namespace deltafin {
namespace {

constexpr size_t kHeaderAlignment = 8;

Status CheckName(const std::string& name, std::unordered_set<std::string_view>* seen) {
  if (name.empty() || name == "__metadata__")
    return Fail(ErrorCode::kInvalidArgument, "safetensors header: tensor name: expected a plain name, got '", name,
                "'");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\')
      return Fail(ErrorCode::kInvalidArgument, "safetensors header: tensor name '", name,
                  "': quotes, backslashes and control characters are not allowed");
  }
  if (!seen->insert(name).second)
    return Fail(ErrorCode::kInvalidArgument, "safetensors header: tensor '", name, "' is declared twice");
  return {};
}

// Bytes of the tensor; refuses negative dimensions and products beyond 64 bits.
Result<uint64_t> CheckedBytes(const TensorDeclaration& tensor) {
  uint64_t bytes = static_cast<uint64_t>(ByteSize(tensor.dtype));
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const int64_t dim = tensor.shape[i];
    if (dim < 0 || !MultiplyChecked(bytes, static_cast<uint64_t>(dim), &bytes))
      return Fail(ErrorCode::kInvalidArgument, "safetensors header: tensor '", tensor.name, "': shape ",
                  ToString(tensor.shape), " is not possible");
  }
  return bytes;
}

std::string ShapeJson(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  text += ']';
  return text;
}

}  // namespace

Result<std::string> MakeSafetensorsHeader(std::span<const TensorDeclaration> tensors) {
  std::unordered_set<std::string_view> seen;
  std::string json = "{";
  uint64_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    DFIN_TRY_VOID(CheckName(tensor.name, &seen));
    DFIN_TRY(const uint64_t bytes, CheckedBytes(tensor));
    uint64_t end = 0;
    if (!AddChecked(offset, bytes, &end))
      return Fail(ErrorCode::kInvalidArgument, "safetensors header: more than 2^64 bytes of tensors");
    if (json.size() > 1) json += ",";
    json += Cat('"', tensor.name, "\":{\"dtype\":\"", ToString(tensor.dtype), "\",\"shape\":", ShapeJson(tensor.shape),
                ",\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  json += "}";
  json.resize(AlignUp(json.size(), kHeaderAlignment), ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) header += static_cast<char>((json.size() >> (8 * i)) & 0xff);
  return header + json;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    std::span<const TensorDeclaration> tensors) {
  DFIN_TRY(const std::string header, MakeSafetensorsHeader(tensors));
  uint64_t data_bytes = 0;
  for (const TensorDeclaration& tensor : tensors) data_bytes += tensor.bytes();
  DFIN_TRY(AtomicFile file, AtomicFile::Create(path));
  DFIN_TRY_VOID(file.Write(std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(file), data_bytes);
}

Status SafetensorsWriter::Append(Bytes bytes) {
  if (bytes.size() > remaining_)
    return Fail(ErrorCode::kInvalidArgument, file_.path(), ": expected at most ", remaining_,
                " more bytes of tensors, got ", bytes.size());
  remaining_ -= bytes.size();
  return file_.Write(bytes);
}

Status SafetensorsWriter::Finish() {
  if (remaining_ != 0)
    return Fail(ErrorCode::kInvalidArgument, file_.path(), ": ", remaining_, " declared bytes of tensors are missing");
  return file_.Publish();
}

Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const NamedTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  DFIN_TRY(SafetensorsWriter writer, SafetensorsWriter::Create(path, declarations));
  for (const NamedTensor& tensor : tensors) {
    if (tensor.data.size() != tensor.declaration.bytes())
      return Fail(ErrorCode::kInvalidArgument, path, ": tensor '", tensor.declaration.name, "': expected ",
                  tensor.declaration.bytes(), " bytes for shape ", ToString(tensor.declaration.shape), ", got ",
                  tensor.data.size());
    DFIN_TRY_VOID(writer.Append(tensor.data));
  }
  return writer.Finish();
}

}  // namespace deltafin
