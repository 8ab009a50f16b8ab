#include "pack/pack_case.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "checkpoint/expert_set.h"
#include "pack/journal.h"
#include "support/checkpoint_builder.h"
#include "synth/shapes.h"
#include "synth/synth.h"

namespace deltafin::test {

namespace fs = std::filesystem;

namespace {

constexpr int kFirstLayer = 1;

ModelSpec MakeSpec() {
  ModelSpec spec = TinySpec({.layers = kPackLayers + 1, .experts = kPackExperts, .experts_per_token = 3});
  spec.routed_expert_hidden_size = 224;
  spec.moe_intermediate_size = 128;
  Result<ModelSpec> checked = CheckSynthSpec(spec);
  DFIN_CHECK(checked.has_value(), checked ? "" : checked.error().message().c_str());
  return *checked;
}

const ModelSpec& Spec() {
  static const ModelSpec spec = MakeSpec();
  return spec;
}

std::string TensorBase(ExpertKey key) {
  return "language_model.model.layers." + std::to_string(key.layer) + ".block_sparse_moe.experts." +
         std::to_string(key.expert) + ".";
}

const char* const kParts[] = {"w1.weight_packed", "w2.weight_packed", "w3.weight_packed",
                              "w1.weight_scale",  "w2.weight_scale",  "w3.weight_scale"};

std::string Slice(const std::string& bytes, uint64_t begin, uint64_t end) {
  return begin <= end && end <= bytes.size() ? bytes.substr(begin, end - begin) : "";
}

struct Parsed {
  Json header;
  uint64_t data = 0;
};

Parsed ParseShard(const std::string& bytes) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return {Json::parse(bytes.substr(8, length)), 8 + length};
}

// A packed record as the six tensors.
std::string Unpacked(const ScaleBases& bases, std::string record) {
  const ExpertGeometry geometry(Spec());
  record.resize(PackedRecordBytes(geometry, 3));
  const ExpertWeights w = UnpackRecord(geometry, bases, reinterpret_cast<std::byte*>(record.data()));
  std::string out;
  const Mxfp4View* views[] = {&w.w1, &w.w2, &w.w3};
  for (const Mxfp4View* v : views)
    out.append(reinterpret_cast<const char*>(v->packed), static_cast<size_t>(v->rows * v->cols / 2));
  for (const Mxfp4View* v : views)
    out.append(reinterpret_cast<const char*>(v->scale), static_cast<size_t>(v->rows * v->cols / 32));
  return out;
}

std::string RecordFrom(const ExpertTable& table, uint32_t slot, const std::vector<std::string>& folders) {
  std::string record;
  for (const ExpertPieceFile& piece : table.pieces) {
    const std::string bytes = ReadFileBytes(folders[static_cast<size_t>(piece.cut.drive)] + "/" + piece.file);
    record += Slice(bytes, piece.Offset(slot), piece.Offset(slot) + piece.cut.bytes());
  }
  return record;
}

}  // namespace

PackCase::PackCase() {
  SynthOptions options;
  options.spec = Spec();
  options.folder = pristine_.path() + "/model";
  const Status written = Synthesize(options);
  DFIN_CHECK(written.has_value(), written ? "" : written.error().message().c_str());
  Reset();
  originals_ = InShards();
  DFIN_CHECK(originals_.size() == kPackRecords, "the model has all its experts");
}

const ModelSpec& PackCase::spec() const { return Spec(); }

std::vector<std::string> PackCase::drives(int count) const {
  std::vector<std::string> folders;
  for (int d = 0; d < count; ++d) folders.push_back(drive(d));
  return folders;
}

std::string PackCase::shard(int number) const {
  return model() + "/model-0000" + std::to_string(number) + "-of-00000" + std::to_string(kPackLayers + 2) +
         ".safetensors";
}

PackOptions PackCase::Options(const std::vector<std::string>& folders, const std::vector<double>& rates) const {
  PackOptions options;
  options.model = model();
  for (size_t d = 0; d < folders.size(); ++d) options.targets.push_back({folders[d], d < rates.size() ? rates[d] : 0});
  options.io = "pread";
  options.batch_bytes = 4 * 12 * kPackPage;
  return options;
}

void PackCase::Reset() {
  for (const auto& entry : fs::directory_iterator(root())) fs::remove_all(entry.path());
  fs::copy(pristine_.path(), root(), fs::copy_options::recursive);
}

void PackCase::MakeAnotherModel() {
  const std::string name = "language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias";
  for (const auto& entry : fs::directory_iterator(model())) {
    if (entry.path().extension() != ".safetensors") continue;
    const Parsed parsed = ParseShard(ReadFileBytes(entry.path().string()));
    if (!parsed.header.contains(name)) continue;
    FlipByte(entry.path().string(), parsed.data + parsed.header[name]["data_offsets"][0].get<uint64_t>());
    return;
  }
  DFIN_CHECK(false, "the model has router biases");
}

void PackCase::SpoilScales(ExpertKey key, int matrix) {
  for (const std::string& folder : {model(), pristine_.path() + "/model"})
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::string bytes = ReadFileBytes(entry.path().string());
      const Parsed parsed = ParseShard(bytes);
      const std::string name = TensorBase(key) + kParts[3 + matrix];
      if (!parsed.header.contains(name)) continue;
      const auto at = parsed.data + parsed.header[name]["data_offsets"][0].get<uint64_t>();
      bytes[at] = 1;
      bytes[at + 1] = 100;
      WriteFileBytes(entry.path().string(), bytes);
    }
  originals_ = InShards();
}

ExpertBytes PackCase::InShards() const {
  ExpertBytes out;
  for (const auto& entry : fs::directory_iterator(model())) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = ReadFileBytes(entry.path().string());
    const Parsed parsed = ParseShard(bytes);
    for (int l = kFirstLayer; l < kFirstLayer + kPackLayers; ++l)
      for (int e = 0; e < kPackExperts; ++e) {
        if (!parsed.header.contains(TensorBase({l, e}) + kParts[0])) continue;
        std::string& expert = out[{l, e}];
        for (const char* part : kParts) {
          const Json& offsets = parsed.header.at(TensorBase({l, e}) + part)["data_offsets"];
          expert += Slice(bytes, parsed.data + offsets[0].get<uint64_t>(), parsed.data + offsets[1].get<uint64_t>());
        }
      }
  }
  return out;
}

ExpertBytes PackCase::InSet(const std::vector<std::string>& folders) const {
  ExpertBytes out;
  const Result<ExpertSet> set = ExpertSet::Open(folders, Spec(), ExpertSet::Need::kAnyRecords);
  EXPECT_TRUE(set) << (set ? "" : set.error().message());
  if (!set) return out;
  for (int l = kFirstLayer; l < kFirstLayer + kPackLayers; ++l)
    for (int e = 0; e < kPackExperts; ++e) {
      const ExpertSetEntry& entry = set->Entry({l, e});
      if (entry.slot == kNoSlot) continue;
      std::string record(set->Table(entry).record_bytes, '\0');
      ReadPart parts[64];
      const size_t count = set->Parts({l, e}, reinterpret_cast<std::byte*>(record.data()), 0, parts);
      for (size_t i = 0; i < count; ++i) {
        const ReadRequest& r = parts[i].request;
        const std::string file = ReadFileBytes(r.file->path());
        const std::string bytes = Slice(file, r.offset, r.offset + r.bytes);
        std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(r.destination));
      }
      out[{l, e}] = Unpacked(entry.bases, std::move(record));
    }
  return out;
}

ExpertBytes PackCase::InJournal(const std::string& folder) const {
  ExpertBytes out;
  const auto contents = PackJournal::Read(folder);
  if (!contents || !*contents) return out;
  const Json header = Json::parse((*contents)->header);
  if (!header.contains("manifest")) return out;
  const auto manifest = ExpertSetManifest::FromText(header["manifest"].get<std::string>(), "journal");
  EXPECT_TRUE(manifest);
  const auto folders = header["to"].get<std::vector<std::string>>();
  for (const JournalEntry& entry : (*contents)->entries) {
    if (entry.kind != JournalKind::kRecord) continue;
    for (const ExpertTable& table : manifest->tables) {
      if (table.whole != static_cast<int32_t>(entry.whole)) continue;
      const auto position = static_cast<int>(entry.position);
      const ExpertKey key{kFirstLayer + position / kPackExperts, position % kPackExperts};
      out[key] = Unpacked(entry.bases, RecordFrom(table, entry.slot, folders));
    }
  }
  return out;
}

FileContents PackCase::Files() const {
  FileContents files;
  for (const auto& entry : fs::recursive_directory_iterator(root()))
    if (entry.is_regular_file()) files[entry.path().string()] = ReadFileBytes(entry.path().string());
  return files;
}

std::string ReadFileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFileBytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  DFIN_CHECK(static_cast<bool>(out.flush()), "a test can write its files");
}

void FlipByte(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  char byte = 0;
  file.seekg(static_cast<std::streamoff>(offset));
  file.get(byte);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x20));
  DFIN_CHECK(static_cast<bool>(file.flush()), "a test can change its files");
}

void InterruptMove(PackOptions options, int shards) {
  options.move = true;
  std::atomic<int> emptied{0};
  options.hook = [&](DiskStep step, const std::string& path) -> Status {
    if (emptied == shards) return Fail(ErrorCode::kIo, "broken: ", path);
    if (step == DiskStep::kPublish && path.ends_with(".safetensors")) ++emptied;
    return {};
  };
  EXPECT_FALSE(Pack(options, {}, {}));
  EXPECT_EQ(emptied, shards);
}

std::string Difference(const FileContents& a, const FileContents& b) {
  for (const auto& [path, bytes] : a) {
    if (!b.contains(path)) return path + " is in the first only";
    const std::string& other = b.at(path);
    if (bytes.size() != other.size())
      return path + ": " + std::to_string(bytes.size()) + " and " + std::to_string(other.size()) + " bytes";
    if (bytes != other) {
      size_t at = 0;
      while (bytes[at] == other[at]) ++at;
      return path + " differs at byte " + std::to_string(at);
    }
  }
  for (const auto& [path, bytes] : b)
    if (!a.contains(path)) return path + " is in the second only";
  return "";
}

std::vector<BadRecord> VerifyAll(const PackCase& c, const std::vector<std::string>& folders, bool repair,
                                 DiskHook hook) {
  VerifyOptions options;
  options.model = c.model();
  options.experts = folders;
  options.repair = repair;
  options.io = "pread";
  options.hook = std::move(hook);
  std::vector<BadRecord> bad;
  const Result<VerifyReport> report = Verify(options, [&](const BadRecord& b) { bad.push_back(b); }, {}, {});
  EXPECT_TRUE(report) << (report ? "" : report.error().message());
  EXPECT_EQ(report ? report->bad : 0, bad.size());
  return bad;
}

}  // namespace deltafin::test
