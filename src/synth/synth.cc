#include "synth/synth.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/units.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/safetensors_writer.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{8} << 20;  // made and written at a time

int ShardCount(const ModelSpec& spec) { return static_cast<int>(spec.layers.size()) + 1; }

// `index` from 0. Five digits, then six, as in the release.
std::string ShardName(int index, int count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%06d.safetensors", index + 1, count);
  return name;
}

// The tensors of shard `index` in file order.
std::vector<SynthTensor> ShardTensors(const ModelSpec& spec, int index) {
  std::vector<SynthTensor> tensors;
  const bool globals = index + 1 == ShardCount(spec);
  if (globals) {
    for (const TensorSpec& row : GlobalTensors(spec))
      tensors.push_back(MakeSynthTensor(spec, -1, row, std::string(row.name)));
  } else {
    for (const TensorSpec& row : LayerTensors(spec, index))
      tensors.push_back(MakeSynthTensor(spec, index, row, LayerTensorName(index, row.name)));
    if (spec.layers[static_cast<size_t>(index)].feed_forward == FeedForwardKind::kMoe) {
      for (int64_t e = 0; e < spec.num_experts; ++e)
        for (const TensorSpec& row : ExpertTensors(spec))
          tensors.push_back(MakeSynthTensor(spec, index, row, ExpertTensorName(index, e, row.name)));
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const SynthTensor& a, const SynthTensor& b) { return a.declaration.name < b.declaration.name; });
  return tensors;
}

std::vector<TensorDeclaration> Declarations(const std::vector<SynthTensor>& tensors) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(tensors.size());
  for (const SynthTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  return declarations;
}

// What one call has made, to be taken away again if it fails.
class MadeFiles {
 public:
  void Add(fs::path path) { paths_.push_back(std::move(path)); }
  void Keep() { paths_.clear(); }
  ~MadeFiles() {
    std::error_code ignored;
    for (auto it = paths_.rbegin(); it != paths_.rend(); ++it) fs::remove(*it, ignored);
  }

 private:
  std::vector<fs::path> paths_;
};

Status PrepareFolder(const std::string& folder, MadeFiles* made) {
  std::error_code error;
  if (folder.empty()) return Fail(ErrorCode::kInvalidArgument, "synthetic checkpoint: no folder given");
  if (!fs::exists(folder, error)) {
    if (!fs::create_directories(folder, error) && error)
      return Fail(ErrorCode::kIo, folder, ": cannot make the folder: ", error.message());
    made->Add(folder);
    return {};
  }
  if (!fs::is_directory(folder, error)) return Fail(ErrorCode::kInvalidArgument, folder, ": not a folder");
  if (!fs::is_empty(folder, error) || error)
    return Fail(ErrorCode::kInvalidArgument, folder,
                ": expected an empty folder or none, got one with files: choose another or empty it");
  return {};
}

Status CheckSpace(const std::string& folder, uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return Fail(ErrorCode::kIo, folder, ": cannot ask for free space: ", error.message());
  if (space.available < needed)
    return Fail(ErrorCode::kUnavailable, folder, ": expected ", FormatBytes(needed), " (", needed,
                " bytes) of free space, got ", FormatBytes(space.available), " (", space.available,
                " bytes): free some, or use fewer --layers or --experts");
  return {};
}

class Writer {
 public:
  Writer(const SynthOptions& options, const SynthProgressCallback& report, CancelToken cancel, MadeFiles* made)
      : options_(options),
        filler_(options.spec, options.seed, options.routing),
        pool_(std::max(1, options.threads)),
        report_(report),
        cancel_(cancel),
        made_(made),
        shards_(ShardCount(options.spec)) {
    progress_.shards = shards_;
  }

  Status WriteAll(uint64_t bytes_total) {
    progress_.bytes_total = bytes_total;
    for (int i = 0; i < shards_; ++i) DFIN_TRY_VOID(WriteShard(i));
    DFIN_TRY_VOID(WriteText("model.safetensors.index.json", IndexText()));
    DFIN_TRY_VOID(WriteText("generation_config.json", MakeGenerationConfigText(options_.spec)));
    return WriteText("config.json", MakeConfigText(options_.spec));
  }

 private:
  Status WriteShard(int index) {
    progress_.shard = index + 1;
    const std::vector<SynthTensor> tensors = ShardTensors(options_.spec, index);
    const std::string name = ShardName(index, shards_);
    const fs::path path = fs::path(options_.folder) / name;
    DFIN_TRY(SafetensorsWriter writer, SafetensorsWriter::Create(path.string(), Declarations(tensors)));
    for (const SynthTensor& tensor : tensors) {
      DFIN_TRY_VOID(WriteTensor(tensor, &writer));
      weight_map_ += Cat(weight_map_.empty() ? "" : ",\n", "  \"", tensor.declaration.name, "\": \"", name, '"');
      tensor_bytes_ += tensor.declaration.bytes();
    }
    DFIN_TRY_VOID(writer.Finish());
    made_->Add(path);
    return {};
  }

  Status WriteTensor(const SynthTensor& tensor, SafetensorsWriter* writer) {
    const int64_t row_bytes = tensor.row_bytes();
    const int64_t piece_rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < tensor.rows(); row += piece_rows) {
      if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, options_.folder, ": stopped");
      const int64_t rows = std::min(piece_rows, tensor.rows() - row);
      const auto bytes = static_cast<size_t>(rows * row_bytes);
      if (piece_.size() < bytes) piece_.resize(bytes);
      pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
        filler_.FillRows(tensor, row + begin, row + end, piece_.data() + begin * row_bytes);
      });
      DFIN_TRY_VOID(writer->Append(Bytes(piece_.data(), bytes)));
      progress_.bytes_done += bytes;
      Report(bytes);
    }
    return {};
  }

  void Report(size_t bytes) {
    unreported_ += bytes;
    if (unreported_ < static_cast<size_t>(kPieceBytes) && progress_.bytes_done < progress_.bytes_total) return;
    unreported_ = 0;
    if (report_) report_(progress_);
  }

  Status WriteText(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(options_.folder) / name;
    DFIN_TRY_VOID(WriteFileAtomically(path.string(), std::as_bytes(std::span(text))));
    made_->Add(path);
    return {};
  }

  std::string IndexText() const {
    return Cat("{\n \"metadata\": {\n  \"total_size\": ", tensor_bytes_, "\n },\n \"weight_map\": {\n", weight_map_,
               "\n }\n}\n");
  }

  const SynthOptions& options_;
  WeightFiller filler_;
  ThreadPool pool_;
  const SynthProgressCallback& report_;
  CancelToken cancel_;
  MadeFiles* made_;
  int shards_;
  SynthProgress progress_;
  size_t unreported_ = 0;
  std::vector<std::byte> piece_;
  std::string weight_map_;
  uint64_t tensor_bytes_ = 0;
};

}  // namespace

SynthPlan PlanSynth(const ModelSpec& spec) {
  SynthPlan plan;
  plan.shards = ShardCount(spec);
  for (int i = 0; i < plan.shards; ++i) {
    const std::vector<SynthTensor> tensors = ShardTensors(spec, i);
    for (const SynthTensor& tensor : tensors) {
      const bool expert = tensor.declaration.dtype == DType::kU8;
      (expert ? plan.expert_bytes : plan.dense_bytes) += tensor.declaration.bytes();
    }
    const Result<std::string> header = MakeSafetensorsHeader(Declarations(tensors));
    DFIN_CHECK(header.has_value(), "the tensor table names every tensor once");
    plan.file_bytes += header->size();
  }
  plan.file_bytes += plan.dense_bytes + plan.expert_bytes;
  const auto embedding = static_cast<uint64_t>((spec.vocab_size - 1) * spec.hidden_size * ByteSize(DType::kBF16));
  plan.bytes_per_token =
      plan.dense_bytes - embedding +
      plan.expert_bytes / static_cast<uint64_t>(spec.num_experts) * static_cast<uint64_t>(spec.num_experts_per_token);
  return plan;
}

Status Synthesize(const SynthOptions& options, const SynthProgressCallback& progress, CancelToken cancel) {
  const SynthPlan plan = PlanSynth(options.spec);
  MadeFiles made;
  DFIN_TRY_VOID(PrepareFolder(options.folder, &made));
  // The index and the file system's own records on top of the shards.
  DFIN_TRY_VOID(CheckSpace(options.folder, plan.file_bytes + plan.file_bytes / 1000 + kMiB));
  Writer writer(options, progress, cancel, &made);
  DFIN_TRY_VOID(writer.WriteAll(plan.dense_bytes + plan.expert_bytes));
  made.Keep();
  return {};
}

}  // namespace deltafin
