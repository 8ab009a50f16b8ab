// expert_trace: which experts every step wanted in every layer, and how many rows each, recorded in a run and read back
// for replay.
//
// A text file (docs/FORMAT.md). The writer keeps one step in memory and writes it when it is finished, so the file is
// complete up to the last finished step however the program ends; a step that was given up is not in it. The reader
// leaves out a last step that is cut short and checks everything else. Knows nothing of slots, bytes or time.
// Thread-compatible. Errors: kIo, kCorrupt (with line number), kInvalidArgument (a file that must not be replaced).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

// What a trace is about. Layers without routed experts count too.
struct ExpertTraceShape {
  int32_t layers = 0;
  int32_t experts = 0;  // of a layer
  int32_t experts_per_token = 0;
  uint64_t record_bytes = 0;  // payload of one expert

  static constexpr int32_t kMostLayers = 1024;
  static constexpr int32_t kMostExperts = 1 << 14;
  static constexpr int32_t kMostRows = 1 << 24;  // of a step
  bool operator==(const ExpertTraceShape&) const = default;
};

// A whole trace in memory: batches in the order in which layers asked.
class ExpertTrace {
 public:
  struct Batch {
    int32_t layer = 0;
    size_t begin = 0, end = 0;  // of the experts
  };
  struct Step {
    int64_t rows = 0;           // tokens computed together
    size_t begin = 0, end = 0;  // of the batches
  };
  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

  explicit ExpertTrace(const ExpertTraceShape& shape) : shape_(shape) {}

  // Of a file's content. `what` names it in errors.
  static Result<ExpertTrace> Parse(std::string_view text, const std::string& what);
  static Result<ExpertTrace> Load(const std::string& path);

  // `experts` ascending, distinct, not empty; layers of a step ascend. `rows`: that want each; empty: one each.
  void AddBatch(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows = {});
  void EndStep(int64_t rows);  // of the batches since the step before it

  const ExpertTraceShape& shape() const { return shape_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Batch>& batches() const { return batches_; }
  std::span<const int32_t> ExpertsOf(const Batch& batch) const {
    return std::span(experts_).subspan(batch.begin, batch.end - batch.begin);
  }
  std::span<const int32_t> RowsOf(const Batch& batch) const {
    return std::span(rows_).subspan(batch.begin, batch.end - batch.begin);
  }
  uint64_t uses() const { return experts_.size(); }
  // The file ended inside a step, which was left out.
  bool was_cut() const { return was_cut_; }

 private:
  friend class ExpertTraceParser;
  ExpertTraceShape shape_;
  std::vector<Step> steps_;
  std::vector<Batch> batches_;
  std::vector<int32_t> experts_;
  std::vector<int32_t> rows_;  // as many
  bool was_cut_ = false;
};

class ExpertTraceWriter {
 public:
  // Makes the file, in the place of an older trace; kInvalidArgument when something else is there.
  static Result<ExpertTraceWriter> Create(const std::string& path, const ExpertTraceShape& shape);
  ExpertTraceWriter(ExpertTraceWriter&& other) noexcept;
  ExpertTraceWriter& operator=(ExpertTraceWriter&&) = delete;
  ~ExpertTraceWriter();

  void Add(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows = {});
  Status EndStep(int64_t rows);
  void DropStep() { step_.clear(); }

 private:
  ExpertTraceWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Status Write(std::string_view text);

  std::string path_;
  int fd_ = -1;
  std::string step_;  // lines of the step in progress
};

}  // namespace deltafin
