#include "support/golden_file.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/float_types.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace deltafin::test {
namespace {

[[noreturn]] void Abort(std::string_view what) {
  std::fprintf(stderr, "GoldenFile: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

template <typename T>
std::vector<T> Copy(const char* from, uint64_t bytes) {
  std::vector<T> values(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(values.data(), from, bytes);
  return values;
}

}  // namespace

GoldenFile::GoldenFile(const std::string& path) {
  const Result<std::string> file = ReadWholeFile(path, uint64_t{1} << 30);
  if (!file) Abort(file.error().message());
  const Result<uint64_t> length = ReadHeaderLength(std::string_view(*file).substr(0, 8), file->size(), path);
  if (!length) Abort(length.error().message());
  const auto header = SafetensorsHeader::Parse(std::string_view(*file).substr(8, *length), path);
  if (!header) Abort(header.error().message());
  if (header->file_bytes() != file->size()) Abort(path + ": truncated");
  for (const TensorEntry& tensor : header->tensors()) {
    const char* data = file->data() + header->data_start() + tensor.begin;
    Entry& entry = entries_[std::string(tensor.name)];
    entry.shape = tensor.shape;
    if (tensor.dtype == DType::kF32)
      entry.floats = Copy<float>(data, tensor.bytes);
    else if (tensor.dtype == DType::kI64)
      entry.ints = Copy<int64_t>(data, tensor.bytes);
    else if (tensor.dtype == DType::kBF16)
      for (const uint16_t value : Copy<uint16_t>(data, tensor.bytes)) entry.floats.push_back(Bf16ToFloat(value));
    else
      Abort(Cat(path, ": ", tensor.name, ": expected F32, BF16 or I64"));
  }
}

std::vector<std::string> GoldenFile::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const GoldenFile::Entry& GoldenFile::Find(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) Abort(Cat("no tensor '", name, "'"));
  return it->second;
}

const Shape& GoldenFile::ShapeOf(std::string_view name) const { return Find(name).shape; }

const std::vector<float>& GoldenFile::Floats(std::string_view name) const {
  const Entry& entry = Find(name);
  if (entry.floats.empty() && entry.shape.elements() > 0) Abort(Cat("'", name, "' is not F32"));
  return entry.floats;
}

const std::vector<int64_t>& GoldenFile::Ints(std::string_view name) const {
  const Entry& entry = Find(name);
  if (entry.ints.empty() && entry.shape.elements() > 0) Abort(Cat("'", name, "' is not I64"));
  return entry.ints;
}

}  // namespace deltafin::test
