// safetensors: the header of one .safetensors file, and the shard index, parsed and checked. Pure functions on bytes.
//
// A file is: 8 bytes little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}},
// then data; offsets count from byte 8 + N. The format wants the data covered without gap or overlap, and that is
// checked here, so a parsed header is consistent in itself; whether the file is long enough is FileBytes() against its
// size. Every byte of input may be hostile. Errors are kCorrupt and name document, tensor, expected and got. Source:
// github.com/huggingface/safetensors, "Format". safetensors.cc is the only includer of simdjson.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltafin {

// Longest header that is read: a shard of the release has 1 MB.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{128} << 20;
// The index of the release has 60 MB.
inline constexpr uint64_t kMaxIndexBytes = uint64_t{512} << 20;

struct TensorEntry {
  std::string_view name;  // inside the header that holds the entry
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // from the start of the data
  uint64_t bytes = 0;
};

// Move-only: entries point into names_.
class SafetensorsHeader {
 public:
  // `json` is the header without its length. `what` names the file in errors.
  static Result<SafetensorsHeader> Parse(std::string_view json, const std::string& what);

  SafetensorsHeader() = default;
  SafetensorsHeader(SafetensorsHeader&&) noexcept = default;
  SafetensorsHeader& operator=(SafetensorsHeader&&) noexcept = default;
  SafetensorsHeader(const SafetensorsHeader&) = delete;
  SafetensorsHeader& operator=(const SafetensorsHeader&) = delete;

  // In the order of their data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  uint64_t data_start() const { return data_start_; }  // 8 + N
  uint64_t data_bytes() const { return data_bytes_; }
  // A text of __metadata__; "" when there is none of that name.
  std::string_view metadata(std::string_view key) const;
  // The size that the whole file must have.
  uint64_t file_bytes() const { return data_start_ + data_bytes_; }

 private:
  std::vector<char> names_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  uint64_t data_start_ = 0;
  uint64_t data_bytes_ = 0;
};

// The header length that the first 8 bytes of a file of `file_bytes` announce, if such a file can hold it.
Result<uint64_t> ReadHeaderLength(std::string_view first_bytes, uint64_t file_bytes, const std::string& what);

// In __metadata__ of a shard whose experts `deltafin pack --move` took out: the set they went to, 16 hexadecimal
// digits.
inline constexpr std::string_view kExpertsMovedTo = "deltafin_experts_moved_to";

// The name of a file in the same folder: no folder, no "..", no control characters, at most 255 bytes.
bool IsPlainFileName(std::string_view name);

// Visits every (tensor, shard file) of model.safetensors.index.json in file order, without keeping them. Shard names
// are plain file names. Stops at the first error of `visit`.
using IndexVisitor = std::function<Status(std::string_view tensor, std::string_view shard)>;
Status ParseIndex(std::string_view json, const std::string& what, const IndexVisitor& visit);

}  // namespace deltafin
