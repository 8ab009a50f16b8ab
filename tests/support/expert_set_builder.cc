#include "support/expert_set_builder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_model_id.h"
#include "checkpoint/integrity.h"
#include "io/direct_file.h"
#include "io/io_engine.h"
#include "io/io_scheduler.h"

namespace deltafin::test {

namespace fs = std::filesystem;

namespace {

template <typename T>
T Must(Result<T> result) {
  DFIN_CHECK(result.has_value(), result ? "" : result.error().message().c_str());
  return std::move(*result);
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  DFIN_CHECK(static_cast<bool>(out.flush()), path.c_str());
}

uint64_t SmallestPage(const std::string& folder) {
  const std::string probe = folder + "/probe";
  WriteAll(probe, std::string(65536, '\0'));
  const uint64_t page = std::max<uint64_t>(512, Must(DirectFile::Open(probe)).alignment());
  fs::remove(probe);
  return page;
}

struct PackedExpert {
  size_t position = 0;  // in the index
  ScaleBases bases = kAllScalesWhole;
  std::string record;  // without padding
};

class Builder {
 public:
  Builder(const std::string& model, const std::vector<std::string>& folders, const ExpertSetOptions& options)
      : options_(options), checkpoint_(Must(Checkpoint::Open({model, ""}))), geometry_(checkpoint_.spec()) {
    set_.folders = folders;
    for (const std::string& folder : folders) fs::create_directories(folder);
    if (options_.rates.empty()) options_.rates.assign(folders.size(), 1.0);
    DFIN_CHECK(options_.rates.size() == folders.size(), "one rate a folder");
    if (options_.page == 0) options_.page = SmallestPage(folders[0]);
  }

  BuiltExpertSet Build() {
    ExpertSetManifest& m = set_.manifest;
    const ModelSpec& spec = checkpoint_.spec();
    m.set_id = options_.set_id;
    m.generation = options_.generation;
    m.model_id = ModelId();
    m.hidden = spec.routed_expert_hidden_size;
    m.intermediate = spec.moe_intermediate_size;
    m.first_moe_layer = static_cast<int64_t>(spec.layers.size()) - spec.num_moe_layers;
    m.moe_layers = spec.num_moe_layers;
    m.experts = spec.num_experts;
    m.page = options_.page;
    m.checksum_chunk = options_.page * options_.chunk_pages;
    m.compact = options_.compact;
    for (size_t d = 0; d < set_.folders.size(); ++d)
      m.drives.push_back({fs::path(set_.folders[d]).filename().string(), options_.rates[d]});
    m.records = m.moe_layers * m.experts - options_.leave_out;
    m.index_file = Cat("index-g", m.generation, ".bin");
    set_.index.entries.resize(static_cast<size_t>(m.moe_layers * m.experts));
    ReadExperts();
    std::vector<std::vector<uint64_t>> chunks(set_.index.entries.size());
    for (int whole = 3; whole >= 0; --whole)
      if (!by_whole_[static_cast<size_t>(whole)].empty() || (whole == 3 && !m.compact)) AddTable(whole, chunks);
    for (const std::vector<uint64_t>& of_one : chunks)
      set_.index.chunk_hashes.insert(set_.index.chunk_hashes.end(), of_one.begin(), of_one.end());
    Publish();
    return std::move(set_);
  }

 private:
  uint64_t ModelId() {
    IoSchedulerOptions options;
    options.drives = checkpoint_.drives();
    IoScheduler io(Must(CreateIoEngine({"pread", 4})), options);
    return Must(ExpertModelId(checkpoint_, io));
  }

  void ReadExperts() {
    const ExpertSetManifest& m = set_.manifest;
    const auto bytes = static_cast<size_t>(geometry_.record_bytes());
    for (size_t position = 0; position < static_cast<size_t>(m.records); ++position) {
      const ExpertKey key{static_cast<int32_t>(m.first_moe_layer + static_cast<int64_t>(position) / m.experts),
                          static_cast<int32_t>(static_cast<int64_t>(position) % m.experts)};
      const ExpertPlace& place = checkpoint_.Expert(key);
      std::ifstream in(checkpoint_.shard(place.shard).path(), std::ios::binary);
      std::string source(bytes, '\0');
      in.seekg(static_cast<std::streamoff>(place.offset));
      in.read(source.data(), static_cast<std::streamsize>(bytes));
      DFIN_CHECK(static_cast<bool>(in), "an expert can be read");
      const ExpertWeights weights =
          ViewExpert(geometry_, place.layout, reinterpret_cast<const std::byte*>(source.data()));
      PackedExpert expert;
      expert.position = position;
      if (m.compact) expert.bases = Bases(weights);
      const int whole = WholeMatrices(expert.bases);
      expert.record.resize(PackedRecordBytes(geometry_, whole));
      PackRecord(geometry_, weights, expert.bases, reinterpret_cast<std::byte*>(expert.record.data()));
      by_whole_[static_cast<size_t>(whole)].push_back(std::move(expert));
    }
  }

  ScaleBases Bases(const ExpertWeights& weights) const {
    ScaleBases bases = kAllScalesWhole;
    const Mxfp4View* views[] = {&weights.w1, &weights.w2, &weights.w3};
    for (size_t i = 0; i < 3; ++i) {
      const auto count = static_cast<size_t>(views[i]->rows * views[i]->cols / kMxfp4Group);
      bases[i] = CompactBase({reinterpret_cast<const std::byte*>(views[i]->scale), count}).value_or(kWholeScales);
    }
    return bases;
  }

  void AddTable(int whole, std::vector<std::vector<uint64_t>>& chunks) {
    std::vector<PackedExpert>& experts = by_whole_[static_cast<size_t>(whole)];
    // Neither the order of the experts nor its reverse.
    std::rotate(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(experts.size() / 3), experts.end());
    ExpertSetManifest& m = set_.manifest;
    ExpertTable table;
    table.whole = whole;
    table.record_bytes = AlignUp(PackedRecordBytes(geometry_, whole), m.page);
    table.slots = static_cast<uint32_t>(experts.size());
    table.replica_slots = static_cast<uint32_t>(static_cast<double>(experts.size()) * options_.replicas);
    const std::vector<CutPiece> cut = CutRecord(table.record_bytes, m.page, options_.rates);
    table.pieces = Files(cut, whole, "");
    if (table.replica_slots > 0) table.replica_pieces = Files(CutReplica(cut, m.page, options_.rates), whole, "copy-");
    for (uint32_t slot = 0; slot < table.slots; ++slot) {
      PackedExpert& expert = experts[slot];
      expert.record.resize(table.record_bytes, '\0');
      const Bytes record = std::as_bytes(std::span(expert.record));
      ExpertSetEntry& entry = set_.index.entries[expert.position];
      entry = {slot, kNoSlot, static_cast<uint8_t>(m.tables.size()), expert.bases, Hash64(record)};
      // Copies in reverse.
      if (slot < table.replica_slots) entry.replica_slot = table.replica_slots - 1 - slot;
      chunks[expert.position] = HashChunks(record, m.checksum_chunk);
    }
    WriteFiles(table.pieces, experts, table.slots, false);
    WriteFiles(table.replica_pieces, experts, table.replica_slots, true);
    m.tables.push_back(std::move(table));
  }

  std::vector<ExpertPieceFile> Files(const std::vector<CutPiece>& cut, int whole, const std::string& kind) const {
    std::vector<ExpertPieceFile> files;
    for (size_t i = 0; i < cut.size(); ++i)
      files.push_back({cut[i], Cat("experts-g", options_.generation, "-t", whole, "-", kind, i, ".bin"), cut[i].begin,
                       cut[i].bytes()});
    return files;
  }

  void WriteFiles(const std::vector<ExpertPieceFile>& pieces, const std::vector<PackedExpert>& experts, uint32_t slots,
                  bool replica) const {
    for (const ExpertPieceFile& piece : pieces) {
      std::string bytes;
      for (uint32_t slot = 0; slot < slots; ++slot) {
        const PackedExpert& expert = experts[replica ? slots - 1 - slot : slot];
        bytes += expert.record.substr(piece.cut.begin, piece.cut.bytes());
      }
      WriteAll(set_.folders[static_cast<size_t>(piece.cut.drive)] + "/" + piece.file, bytes);
    }
  }

  void Publish() {
    ExpertSetManifest& m = set_.manifest;
    const std::vector<std::byte> index = set_.index.ToBytes(m);
    m.index_bytes = index.size();
    m.index_hash = Hash64(index);
    for (size_t d = 0; d < set_.folders.size(); ++d) {
      WriteAll(set_.folders[d] + "/" + m.index_file, {reinterpret_cast<const char*>(index.data()), index.size()});
      ExpertSetManifest mine = m;
      mine.this_drive = static_cast<int32_t>(d);
      WriteAll(set_.folders[d] + "/" + ManifestFileName(m.generation), mine.ToText());
    }
  }

  ExpertSetOptions options_;
  const Checkpoint checkpoint_;
  const ExpertGeometry geometry_;
  std::vector<PackedExpert> by_whole_[4];
  BuiltExpertSet set_;
};

}  // namespace

BuiltExpertSet BuildExpertSet(const std::string& model, const std::vector<std::string>& folders,
                              const ExpertSetOptions& options) {
  return Builder(model, folders, options).Build();
}

std::vector<std::string> DriveFolders(const std::string& parent, int count) {
  std::vector<std::string> folders;
  for (int i = 0; i < count; ++i) folders.push_back(Cat(parent, "/drive", i));
  return folders;
}

}  // namespace deltafin::test
