// SafetensorsWriter: writes one safetensors file: tensors declared first, then their bytes in the declared order.
//
// The file appears under its name only when Finish() succeeds (atomic_file.h). The header is padded with spaces to a
// multiple of 8 bytes, as the format asks; data follows without gaps. Memory: the header and about 1 MiB, whatever the
// size of the tensors. Move-only, not thread-safe. Reading is checkpoint/safetensors.h. Errors: kInvalidArgument (a
// name twice, a name with quotes, backslashes or control characters, a dimension that is negative, more or fewer bytes
// than declared), kIo. Format: 8 bytes little-endian header length, JSON {name: {dtype, shape, data_offsets: [begin,
// end)}}, data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "checkpoint/atomic_file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltafin {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;

  uint64_t bytes() const { return static_cast<uint64_t>(shape.elements() * ByteSize(dtype)); }
};

class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::string& path, std::span<const TensorDeclaration> tensors);

  // The next bytes of the data, in pieces of any size.
  Status Append(Bytes bytes);
  Status Finish();

 private:
  SafetensorsWriter(AtomicFile file, uint64_t data_bytes) : file_(std::move(file)), remaining_(data_bytes) {}

  AtomicFile file_;
  uint64_t remaining_ = 0;  // declared bytes that have not been appended
};

// The file's first bytes: length, JSON, padding.
Result<std::string> MakeSafetensorsHeader(std::span<const TensorDeclaration> tensors);

// A tensor in memory. `data` is not owned and holds declaration.bytes().
struct NamedTensor {
  TensorDeclaration declaration;
  Bytes data;
};

// All of `tensors` in one call.
Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace deltafin
