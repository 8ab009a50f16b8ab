#include "checkpoint/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/model_file.h"
#include "base/units.h"

namespace deltafin {
namespace {

namespace dom = simdjson::dom;

// {name: {"shape": [..]}} is three levels deep; the rest is room for other writers' metadata.
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxNameBytes = 4096;
constexpr uint64_t kMaxDim = uint64_t{1} << 48;

// For messages: names may be hostile.
std::string Quote(std::string_view name) {
  constexpr size_t kLongest = 200;
  std::string text = "'";
  for (const char c : name.substr(0, kLongest)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return text + (name.size() > kLongest ? "...'" : "'");
}

class Document {
 public:
  // The parser owns the text of the strings that `root()` hands out.
  Status Parse(std::string_view json, const std::string& what) {
    const std::unique_ptr<char[]> padded(new (std::nothrow) char[json.size() + simdjson::SIMDJSON_PADDING]);
    if (padded == nullptr)
      return Fail(ErrorCode::kOutOfMemory, what, ": no memory for ", FormatBytes(json.size()), " of JSON");
    std::copy(json.begin(), json.end(), padded.get());
    std::fill_n(padded.get() + json.size(), simdjson::SIMDJSON_PADDING, ' ');
    auto error = parser_.allocate(std::max<size_t>(json.size(), 1), kMaxDepth);
    if (!error) error = parser_.parse(padded.get(), json.size(), false).get(root_);
    if (error == simdjson::MEMALLOC) return Fail(ErrorCode::kOutOfMemory, what, ": no memory to parse the JSON");
    if (error == simdjson::DEPTH_ERROR)
      return Fail(ErrorCode::kCorrupt, what, ": expected JSON at most ", kMaxDepth, " levels deep, got more");
    if (error) return Fail(ErrorCode::kCorrupt, what, ": not valid JSON: ", simdjson::error_message(error));
    return {};
  }
  const dom::element& root() const { return root_; }

 private:
  dom::parser parser_;
  dom::element root_;
};

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8, DType::kI64})
    if (ToString(dtype) == name) return dtype;
  return std::nullopt;
}

// Reads one value of the header, {"dtype": .., "shape": [..], "data_offsets": [begin, end]}.
class EntryReader {
 public:
  EntryReader(const std::string& what, std::string_view name) : what_(what), name_(name) {}

  Result<TensorEntry> Read(const dom::element& value) const {
    dom::object object;
    if (value.get(object)) return Bad("an object with dtype, shape and data_offsets", "another type");
    TensorEntry entry;
    std::optional<DType> dtype;
    bool has_shape = false, has_offsets = false;
    for (const dom::key_value_pair member : object) {
      if (member.key == "dtype" && !dtype) {
        DFIN_TRY(dtype, ReadDType(member.value));
      } else if (member.key == "shape" && !has_shape) {
        DFIN_TRY(entry.shape, ReadShape(member.value));
        has_shape = true;
      } else if (member.key == "data_offsets" && !has_offsets) {
        DFIN_TRY_VOID(ReadOffsets(member.value, entry));
        has_offsets = true;
      } else {
        return Bad("dtype, shape and data_offsets, each once", Quote(member.key));
      }
    }
    if (!dtype || !has_shape || !has_offsets)
      return Bad("dtype, shape and data_offsets", !dtype ? "no dtype" : !has_shape ? "no shape" : "no data_offsets");
    entry.dtype = *dtype;
    DFIN_TRY_VOID(CheckSize(entry));
    return entry;
  }

 private:
  template <typename... Got>
  Failure Bad(std::string_view expected, const Got&... got) const {
    return Fail(ErrorCode::kCorrupt, what_, ": tensor ", Quote(name_), ": expected ", expected, ", got ", got...);
  }

  Result<DType> ReadDType(const dom::element& value) const {
    constexpr std::string_view kExpected = "dtype F32, BF16, U8 or I64";
    std::string_view text;
    if (value.get(text)) return Bad(kExpected, "another type");
    const std::optional<DType> dtype = DTypeFromName(text);
    if (!dtype) return Bad(kExpected, Quote(text));
    return *dtype;
  }

  Result<Shape> ReadShape(const dom::element& value) const {
    constexpr std::string_view kExpected = "a shape of at most 4 dimensions, each from 0 to 2^48";
    dom::array array;
    if (value.get(array)) return Bad(kExpected, "another type");
    Shape shape;
    for (const dom::element item : array) {
      uint64_t dim = 0;
      if (item.get(dim)) return Bad(kExpected, "a dimension that is not a whole number");
      if (dim > kMaxDim) return Bad(kExpected, dim);
      if (shape.rank() == Shape::kMaxRank) return Bad(kExpected, "more dimensions");
      shape.Append(static_cast<int64_t>(dim));
    }
    return shape;
  }

  Status ReadOffsets(const dom::element& value, TensorEntry& entry) const {
    constexpr std::string_view kExpected = "data_offsets [begin, end] with begin <= end";
    dom::array array;
    if (value.get(array)) return Bad(kExpected, "another type");
    uint64_t offsets[2] = {};
    size_t count = 0;
    for (const dom::element item : array) {
      if (count == 2) return Bad(kExpected, "more than two numbers");
      if (item.get(offsets[count++])) return Bad(kExpected, "something that is not a whole number");
    }
    if (count != 2) return Bad(kExpected, count, " numbers");
    if (offsets[1] < offsets[0]) return Bad(kExpected, "[", offsets[0], ", ", offsets[1], "]");
    if (offsets[1] > uint64_t{INT64_MAX} / 2) return Bad("data_offsets inside a file", offsets[1]);
    entry.begin = offsets[0];
    entry.bytes = offsets[1] - offsets[0];
    return {};
  }

  Status CheckSize(const TensorEntry& entry) const {
    auto bytes = static_cast<uint64_t>(ByteSize(entry.dtype));
    bool fits = true;
    for (int i = 0; i < entry.shape.rank(); ++i)
      fits = fits && MultiplyChecked(bytes, static_cast<uint64_t>(entry.shape[i]), &bytes);
    // Text only for the error: this runs half a million times.
    const auto type = [&] { return Cat(ToString(entry.dtype), " ", ToString(entry.shape)); };
    if (!fits) return Bad("a size of less than 2^64 bytes", type());
    if (bytes != entry.bytes) return Bad(Cat(bytes, " bytes for ", type()), entry.bytes, " between its data_offsets");
    return {};
  }

  const std::string& what_;
  std::string_view name_;
};

// {"format": "pt", ...}: strings only.
Status ReadMetadata(const dom::element& value, const std::string& what,
                    std::vector<std::pair<std::string, std::string>>& metadata) {
  const auto bad = [&] { return Fail(ErrorCode::kCorrupt, what, ": __metadata__: expected an object of strings"); };
  dom::object object;
  if (value.get(object)) return bad();
  for (const dom::key_value_pair member : object) {
    std::string_view text;
    if (member.value.get(text)) return bad();
    metadata.emplace_back(member.key, text);
  }
  return {};
}

Status CheckCoverage(const std::vector<TensorEntry>& tensors, const std::string& what) {
  uint64_t end = 0;
  std::string_view before;
  for (const TensorEntry& t : tensors) {
    if (t.begin < end)
      return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(t.name), " overlaps ", Quote(before),
                  ": expected data from offset ", end, " on, got ", t.begin);
    if (t.begin > end)
      return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(t.name), ": expected data to begin at offset ", end,
                  " (the format allows no gaps), got ", t.begin);
    end = t.begin + t.bytes;
    before = t.name;
  }
  return {};
}

Status CheckDistinct(const std::vector<TensorEntry>& tensors, const std::string& what) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(*twice), ": expected once in the header, got it twice");
}

}  // namespace

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
}

Result<SafetensorsHeader> SafetensorsHeader::Parse(std::string_view json, const std::string& what) {
  Document document;
  DFIN_TRY_VOID(document.Parse(json, what));
  dom::object root;
  if (document.root().get(root)) return Fail(ErrorCode::kCorrupt, what, ": header: expected a JSON object");

  SafetensorsHeader header;
  // All names fit, because unescaping never makes a string longer: the views below stay valid.
  header.names_.reserve(json.size());
  bool seen_metadata = false;
  for (const dom::key_value_pair member : root) {
    if (member.key == "__metadata__") {
      if (seen_metadata) return Fail(ErrorCode::kCorrupt, what, ": __metadata__: expected once, got it twice");
      seen_metadata = true;
      DFIN_TRY_VOID(ReadMetadata(member.value, what, header.metadata_));
      continue;
    }
    if (member.key.empty() || member.key.size() > kMaxNameBytes)
      return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(member.key), ": expected a name of 1 to ",
                  kMaxNameBytes, " bytes, got ", member.key.size());
    DFIN_TRY(TensorEntry entry, EntryReader(what, member.key).Read(member.value));
    const size_t at = header.names_.size();
    header.names_.insert(header.names_.end(), member.key.begin(), member.key.end());
    entry.name = {header.names_.data() + at, member.key.size()};
    header.tensors_.push_back(entry);
  }
  std::sort(header.tensors_.begin(), header.tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes != b.bytes ? a.bytes < b.bytes : a.name < b.name;
  });
  DFIN_TRY_VOID(CheckDistinct(header.tensors_, what));
  DFIN_TRY_VOID(CheckCoverage(header.tensors_, what));
  header.data_start_ = 8 + json.size();
  if (!header.tensors_.empty()) header.data_bytes_ = header.tensors_.back().begin + header.tensors_.back().bytes;
  return header;
}

std::string_view SafetensorsHeader::metadata(std::string_view key) const {
  for (const auto& [name, text] : metadata_)
    if (name == key) return text;
  return "";
}

Result<uint64_t> ReadHeaderLength(std::string_view first_bytes, uint64_t file_bytes, const std::string& what) {
  if (first_bytes.size() < 8 || file_bytes < 8)
    return Fail(ErrorCode::kCorrupt, what, ": expected a header length of 8 bytes, got a file of ", file_bytes,
                " bytes: download it again");
  if (IsLfsPointer(first_bytes)) return LfsPointerError(what);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(first_bytes[i]);
  if (length > kMaxHeaderBytes)
    return Fail(ErrorCode::kCorrupt, what, ": header length: expected at most ", kMaxHeaderBytes, " bytes, got ",
                length, ": this is not a safetensors file, or it is damaged");
  if (length > file_bytes - 8)
    return Fail(ErrorCode::kCorrupt, what, ": truncated: expected a header of ", length, " bytes, got a file of ",
                file_bytes, " bytes: download it again");
  return length;
}

Status ParseIndex(std::string_view json, const std::string& what, const IndexVisitor& visit) {
  Document document;
  DFIN_TRY_VOID(document.Parse(json, what));
  dom::object root;
  if (document.root().get(root)) return Fail(ErrorCode::kCorrupt, what, ": expected a JSON object");
  dom::object map;
  if (root["weight_map"].get(map))
    return Fail(ErrorCode::kCorrupt, what, ": weight_map: expected an object {tensor: file}, got nothing of that kind");
  for (const dom::key_value_pair member : map) {
    std::string_view shard;
    if (member.value.get(shard))
      return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(member.key),
                  ": expected a file name, got another type");
    if (!IsPlainFileName(shard))
      return Fail(ErrorCode::kCorrupt, what, ": tensor ", Quote(member.key),
                  ": expected the name of a file in the same folder, got ", Quote(shard));
    DFIN_TRY_VOID(visit(member.key, shard));
  }
  return {};
}

}  // namespace deltafin
