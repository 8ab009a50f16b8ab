#include "checkpoint/checkpoint_index.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/leftovers.h"
#include "checkpoint/safetensors.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "DFINHDR1";  // the last character is the version
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr std::string_view kNameStart = "headers-";
constexpr std::string_view kNameEnd = ".bin";

class Writer {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T>);
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void PutStamp(const FileStamp& stamp) {
    Put(stamp.bytes);
    Put(stamp.modified_ns);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Past the end it yields zeros and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_integral_v<T>);
    uint64_t bits = 0;
    const std::string_view bytes = Take(sizeof(T));
    for (size_t i = bytes.size(); i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
    return static_cast<T>(bits);
  }
  std::string GetText() { return std::string(Take(Get<uint32_t>())); }
  FileStamp GetStamp() {
    const auto bytes = Get<uint64_t>();
    return {bytes, Get<int64_t>()};
  }
  // A count of things that take at least `bytes_each`: bounds what is allocated for them.
  uint32_t GetCount(size_t bytes_each) {
    const auto count = Get<uint32_t>();
    if (count > rest_.size() / bytes_each) ok_ = false;
    return ok_ ? count : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::string_view Take(size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

void PutDense(Writer& out, const TensorPlace& place) {
  out.Put(static_cast<uint8_t>(place.shape.rank()));
  for (int i = 0; i < place.shape.rank(); ++i) out.Put(place.shape[i]);
  out.Put(place.shard);
  out.Put(place.offset);
}

bool Inside(const CheckpointPlaces& places, int32_t shard, uint64_t offset, uint64_t bytes) {
  if (shard < 0 || static_cast<size_t>(shard) >= places.shards.size()) return false;
  const uint64_t size = places.stamps[static_cast<size_t>(shard)].bytes;
  return bytes <= size && offset <= size - bytes;
}

bool GetDense(Reader& in, const TensorSpec& spec, const CheckpointPlaces& places, TensorPlace& place) {
  const auto rank = in.Get<uint8_t>();
  if (rank != spec.shape.rank()) return false;
  uint64_t bytes = static_cast<uint64_t>(ByteSize(spec.dtype));
  for (int i = 0; i < rank; ++i) {
    const auto dim = in.Get<int64_t>();
    if (dim < 0 || !MultiplyChecked(bytes, static_cast<uint64_t>(dim), &bytes)) return false;
    place.shape.Append(dim);
  }
  place.dtype = spec.dtype;
  place.shard = in.Get<int32_t>();
  place.offset = in.Get<uint64_t>();
  place.bytes = bytes;
  return in.ok() && spec.Matches(place.dtype, place.shape) && Inside(places, place.shard, place.offset, place.bytes);
}

void PutExpert(Writer& out, const ExpertPlace& place) {
  out.Put(place.shard);
  out.Put(place.offset);
  for (const uint32_t at : place.layout.packed_offset) out.Put(at);
  for (const uint32_t at : place.layout.scale_offset) out.Put(at);
}

bool GetExpert(Reader& in, const TensorDirectory& directory, const CheckpointPlaces& places, bool may_be_absent,
               ExpertPlace& place) {
  place.shard = in.Get<int32_t>();
  place.offset = in.Get<uint64_t>();
  for (uint32_t& at : place.layout.packed_offset) at = in.Get<uint32_t>();
  for (uint32_t& at : place.layout.scale_offset) at = in.Get<uint32_t>();
  if (may_be_absent && place.shard == -1) return in.ok();
  uint64_t record_bytes = 0;
  for (int part = 0; part < kExpertParts; ++part)
    record_bytes += static_cast<uint64_t>(directory.Spec(directory.dense_count() + part).shape.elements());
  for (int part = 0; part < kExpertParts; ++part) {
    const auto matrix = static_cast<size_t>(part / 2);
    const uint64_t at = part % 2 == 0 ? place.layout.packed_offset[matrix] : place.layout.scale_offset[matrix];
    const auto bytes = static_cast<uint64_t>(directory.Spec(directory.dense_count() + part).shape.elements());
    if (at + bytes > record_bytes) return false;
  }
  return in.ok() && Inside(places, place.shard, place.offset, record_bytes);
}

bool GetPlaces(Reader& in, const TensorDirectory& directory, bool experts_elsewhere, CheckpointPlaces& places) {
  const uint32_t shards = in.GetCount(20);
  for (uint32_t i = 0; i < shards; ++i) {
    places.shards.push_back(in.GetText());
    if (!IsPlainFileName(places.shards.back())) return false;
    places.stamps.push_back(in.GetStamp());
  }
  places.fingerprint = in.Get<uint64_t>();
  if (in.GetCount(13) != directory.dense_count()) return false;
  places.dense.resize(static_cast<size_t>(directory.dense_count()));
  for (int64_t slot = 0; slot < directory.dense_count(); ++slot)
    if (!GetDense(in, directory.Spec(slot), places, places.dense[static_cast<size_t>(slot)])) return false;
  if (in.GetCount(36) != directory.expert_count()) return false;
  places.experts.resize(static_cast<size_t>(directory.expert_count()));
  for (ExpertPlace& place : places.experts)
    if (!GetExpert(in, directory, places, experts_elsewhere, place)) return false;
  return in.at_end();
}

// Errors are of no interest: another process may be tidying as well.
void Tidy(const std::string& cache_folder) {
  RemoveLeftovers(cache_folder, kNameStart);
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator it(cache_folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with(kNameStart) || !name.ends_with(kNameEnd)) continue;
    const fs::file_time_type time = fs::last_write_time(it->path(), ignored);
    if (!ignored) files.emplace_back(time, it->path());
  }
  if (files.size() <= kMostHeaderFiles) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMostHeaderFiles < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace

std::string SerializePlaces(const CheckpointSource& source, const CheckpointPlaces& places) {
  Writer body;
  body.PutText(source.folder);
  body.Put(source.config_hash);
  body.PutStamp(source.index);
  body.Put(static_cast<uint32_t>(places.shards.size()));
  for (size_t i = 0; i < places.shards.size(); ++i) {
    body.PutText(places.shards[i]);
    body.PutStamp(places.stamps[i]);
  }
  body.Put(places.fingerprint);
  body.Put(static_cast<uint32_t>(places.dense.size()));
  for (const TensorPlace& place : places.dense) PutDense(body, place);
  body.Put(static_cast<uint32_t>(places.experts.size()));
  for (const ExpertPlace& place : places.experts) PutExpert(body, place);

  const std::string text = body.Take();
  Writer hash;
  hash.Put(Hash64(text));
  return std::string(kMagic) + hash.Take() + text;
}

std::optional<CheckpointPlaces> ParsePlaces(std::string_view bytes, const CheckpointSource& source,
                                            const TensorDirectory& directory) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  Reader in(bytes.substr(kMagic.size()));
  const auto hash = in.Get<uint64_t>();
  if (!in.ok() || hash != Hash64(bytes.substr(kMagic.size() + sizeof hash))) return std::nullopt;
  CheckpointSource stored;
  stored.folder = in.GetText();
  stored.config_hash = in.Get<uint64_t>();
  stored.index = in.GetStamp();
  stored.experts_elsewhere = source.experts_elsewhere;  // the file's name and the hash of the config tell
  CheckpointPlaces places;
  if (stored != source || !GetPlaces(in, directory, source.experts_elsewhere, places)) return std::nullopt;
  return places;
}

std::string PlacesPath(const std::string& cache_folder, const CheckpointSource& source) {
  const uint64_t hash = Hash64(source.folder, source.experts_elsewhere ? 1 : 0);
  return Cat(cache_folder, "/", kNameStart, ToHex(hash), kNameEnd);
}

std::optional<CheckpointPlaces> LoadPlaces(const std::string& cache_folder, const CheckpointSource& source,
                                           const TensorDirectory& directory) {
  const Result<std::string> bytes = ReadWholeFile(PlacesPath(cache_folder, source), kMaxFileBytes);
  if (!bytes) return std::nullopt;
  std::optional<CheckpointPlaces> places = ParsePlaces(*bytes, source, directory);
  if (!places) return std::nullopt;
  for (size_t i = 0; i < places->shards.size(); ++i) {
    const Result<FileStamp> stamp = StampFile(source.folder + "/" + places->shards[i]);
    if (!stamp || *stamp != places->stamps[i]) return std::nullopt;
  }
  return places;
}

Status StorePlaces(const std::string& cache_folder, const CheckpointSource& source, const CheckpointPlaces& places) {
  std::error_code error;
  fs::create_directories(cache_folder, error);
  if (error) return Fail(ErrorCode::kIo, cache_folder, ": cannot make this folder: ", error.message());
  const std::string bytes = SerializePlaces(source, places);
  DFIN_TRY_VOID(WriteFileAtomically(PlacesPath(cache_folder, source), std::as_bytes(std::span(bytes))));
  Tidy(cache_folder);
  return {};
}

}  // namespace deltafin
