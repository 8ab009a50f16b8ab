// Fuzzes packed dense weights: the manifest, and matrices in 12 bits. The first byte chooses. Checksums are made right,
// so that what follows them is reached. Whatever CheckBf12 accepts is decoded.
#include <cstdlib>
#include <memory>

#include "checkpoint/dense_manifest.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "require.h"
#include "tensor/bf12.h"

namespace {

using namespace deltafin;
using fuzz::Require;

void Manifest(std::string_view body) {
  static_cast<void>(DenseManifest::FromText(body, "fuzz"));
  const std::string text = Cat(body, ",\"checksum\":\"", ToHex(Hash64(body)), "\"}\n");
  const auto manifest = DenseManifest::FromText(text, "fuzz");
  if (!manifest) return;
  Require(manifest->layers >= 1);
  for (const DenseUnit& unit : manifest->units) {
    Require(unit.unit >= 0 && unit.unit <= manifest->layers);
    uint64_t end = 0;
    for (const DenseTensor& tensor : unit.tensors) {
      Require(tensor.offset >= end && tensor.offset % kBf12Alignment == 0);
      end = tensor.offset + tensor.bytes;
      Require(end > tensor.offset && end <= unit.bytes);
      if (tensor.dtype == DType::kBf12) Require(tensor.shape.rank() == 2);
    }
  }
  const auto again = DenseManifest::FromText(manifest->ToText(), "fuzz");
  Require(again.has_value() && again->units == manifest->units);
}

void Matrix(std::string_view data) {
  if (data.size() < 2) return;
  const int64_t rows = 1 + static_cast<uint8_t>(data[0]) % 8, columns = 1 + 3 * static_cast<uint8_t>(data[1]);
  data.remove_prefix(2);
  // A sound beginning, so that what follows it is reached too: row starts, then what the input says.
  for (const bool sound : {false, true}) {
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::aligned_alloc(64, AlignUp(data.size() + 1, 64))), &std::free);
    std::memcpy(memory.get(), data.data(), data.size());
    const auto packed = static_cast<uint64_t>(Bf12PackedRowBytes(columns)), first = Bf12View::RowsAt(rows);
    if (sound) {
      if (data.size() < first) return;
      for (int64_t n = 0; n <= rows; ++n) {
        const auto at = static_cast<uint32_t>((first + static_cast<uint64_t>(n) * packed) / kBf12RowAlignment);
        std::memcpy(memory.get() + 4 * n, &at, 4);
      }
    }
    if (!CheckBf12(Bytes(memory.get(), data.size()), rows, columns)) continue;
    const Bf12View view(memory.get(), rows, columns);
    std::vector<uint16_t> values(static_cast<size_t>(columns));
    for (int64_t n = 0; n < rows; ++n) DecodeBf12Row(view.Row(n), columns, values.data());
  }
}

// Any values come back.
void Values(std::string_view data) {
  const int64_t columns = 31 + 5 * static_cast<uint8_t>(data.empty() ? 0 : data[0]);
  const auto rows = static_cast<int64_t>(data.size()) / (2 * columns);
  if (!HasBf12Rows(columns) || rows == 0) return;
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns)), decoded(static_cast<size_t>(columns));
  std::memcpy(values.data(), data.data(), values.size() * 2);
  static ThreadPool pool(1);
  std::vector<std::byte> memory(Bf12MostBytes(rows, columns) + 64);
  std::byte* out = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  Bf12Writer writer(rows, columns, out);
  writer.Append(values.data(), rows, pool);
  const uint64_t bytes = writer.Finish();
  Require(bytes <= Bf12MostBytes(rows, columns));
  Require(CheckBf12(Bytes(out, bytes), rows, columns).has_value());
  for (int64_t n = 0; n < rows; ++n) {
    DecodeBf12Row(Bf12View(out, rows, columns).Row(n), columns, decoded.data());
    Require(std::memcmp(decoded.data(), values.data() + n * columns, decoded.size() * 2) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      Manifest(rest);
      break;
    case 1:
      Matrix(rest);
      break;
    default:
      Values(rest);
      break;
  }
  return 0;
}
