#include "cache/expert_trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace deltafin {
namespace {

constexpr std::string_view kMagic = "deltafin-expert-trace 1 ";
constexpr uint64_t kMostRecordBytes = uint64_t{1} << 30;

void AppendNumber(std::string& text, int64_t value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

std::string Header(const ExpertTraceShape& shape) {
  return Cat(kMagic, "layers ", shape.layers, " experts ", shape.experts, " per-token ", shape.experts_per_token,
             " record-bytes ", shape.record_bytes, "\n");
}

// Nothing but an older trace may be replaced: a mistyped path could name a shard.
Status CheckReplaceable(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Fail(ErrorCode::kIo, path, ": cannot be looked at: ", std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return {};  // a pipe or /dev/null is the caller's choice
  char start[kMagic.size()] = {};
  const ssize_t got = pread(fd, start, sizeof start, 0);
  if (got == static_cast<ssize_t>(sizeof start) && std::string_view(start, sizeof start) == kMagic) return {};
  return Fail(ErrorCode::kInvalidArgument, path,
              ": expected a new file or an older expert trace, got a file with other "
              "content: name another file");
}

}  // namespace

// The grammar: a header line; then for each step a line "LAYER EXPERT EXPERT*ROWS ..." a layer, and a line
// "step ROWS".
class ExpertTraceParser {
 public:
  ExpertTraceParser(std::string_view text, const std::string& what) : left_(text), what_(what) {}

  Result<ExpertTrace> Parse() {
    DFIN_TRY(const ExpertTraceShape shape, ParseHeader());
    ExpertTrace trace(shape);
    while (TakeLine()) {
      if (line_.starts_with("step ")) {
        DFIN_TRY_VOID(ParseStep(trace));
      } else {
        DFIN_TRY_VOID(ParseBatch(trace));
      }
    }
    CutOpenStep(trace);
    return trace;
  }

 private:
  // A line without its end is one that was cut short: it counts as none.
  bool TakeLine() {
    const size_t end = left_.find('\n');
    cut_ = end == std::string_view::npos && !left_.empty();
    if (end == std::string_view::npos) return false;
    line_ = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    ++number_;
    return true;
  }

  template <typename... Parts>
  Failure Refuse(const Parts&... parts) const {
    return Fail(ErrorCode::kCorrupt, what_, ": line ", number_, ": ", parts...,
                ": the file is damaged or no expert trace; record it again");
  }

  bool TakeText(std::string_view text) {
    if (!line_.starts_with(text)) return false;
    line_.remove_prefix(text.size());
    return true;
  }

  // A whole number in [0, most] and what follows it.
  bool TakeNumber(uint64_t most, uint64_t* value) {
    const auto [end, error] = std::from_chars(line_.data(), line_.data() + line_.size(), *value);
    if (error != std::errc() || *value > most) return false;
    line_.remove_prefix(static_cast<size_t>(end - line_.data()));
    return true;
  }

  Result<ExpertTraceShape> ParseHeader() {
    if (!TakeLine() || !TakeText(kMagic))
      return Fail(ErrorCode::kCorrupt, what_, ": expected a first line \"", kMagic,
                  "...\", got something else: it is no expert trace of this version (run --expert-trace makes one)");
    uint64_t layers = 0, experts = 0, per_token = 0, bytes = 0;
    const bool is_read = TakeText("layers ") && TakeNumber(ExpertTraceShape::kMostLayers, &layers) &&
                         TakeText(" experts ") && TakeNumber(ExpertTraceShape::kMostExperts, &experts) &&
                         TakeText(" per-token ") && TakeNumber(experts, &per_token) && TakeText(" record-bytes ") &&
                         TakeNumber(kMostRecordBytes, &bytes) && line_.empty();
    if (!is_read || layers == 0 || per_token == 0 || bytes == 0)
      return Refuse("expected layers (1 to ", ExpertTraceShape::kMostLayers, "), experts (1 to ",
                    ExpertTraceShape::kMostExperts, "), per-token (1 to experts), record-bytes (1 to ",
                    kMostRecordBytes, ")");
    return ExpertTraceShape{static_cast<int32_t>(layers), static_cast<int32_t>(experts),
                            static_cast<int32_t>(per_token), bytes};
  }

  Status ParseStep(ExpertTrace& trace) {
    uint64_t rows = 0;
    if (!TakeText("step ") || !TakeNumber(ExpertTraceShape::kMostRows, &rows) || rows == 0 || !line_.empty())
      return Refuse("expected \"step ROWS\", 1 to ", ExpertTraceShape::kMostRows, " rows");
    if (last_layer_ < 0) return Refuse("expected the experts of at least one layer before the end of a step");
    trace.EndStep(static_cast<int64_t>(rows));
    last_layer_ = -1;
    return {};
  }

  Status ParseBatch(ExpertTrace& trace) {
    uint64_t layer = 0;
    const auto layers = static_cast<uint64_t>(trace.shape().layers);
    if (!TakeNumber(layers - 1, &layer) || static_cast<int64_t>(layer) <= last_layer_)
      return Refuse("expected a layer of ", last_layer_ + 1, " to ", layers - 1);
    last_layer_ = static_cast<int64_t>(layer);
    experts_.clear();
    rows_.clear();
    const auto most = static_cast<uint64_t>(trace.shape().experts) - 1;
    while (!line_.empty()) {
      uint64_t expert = 0;
      const int64_t before = experts_.empty() ? -1 : experts_.back();
      if (!TakeText(" ") || !TakeNumber(most, &expert) || static_cast<int64_t>(expert) <= before)
        return Refuse("layer ", layer, ": expected experts ascending, ", before + 1, " to ", most, " next");
      uint64_t rows = 1;
      if (TakeText("*") && (!TakeNumber(ExpertTraceShape::kMostRows, &rows) || rows == 0))
        return Refuse("layer ", layer, ", expert ", expert, ": expected 1 to ", ExpertTraceShape::kMostRows, " rows");
      experts_.push_back(static_cast<int32_t>(expert));
      rows_.push_back(static_cast<int32_t>(rows));
    }
    if (experts_.empty()) return Refuse("layer ", layer, ": expected at least one expert");
    trace.AddBatch(static_cast<int32_t>(layer), experts_, rows_);
    return {};
  }

  void CutOpenStep(ExpertTrace& trace) const {
    trace.was_cut_ = cut_ || last_layer_ >= 0;
    if (last_layer_ < 0) return;
    const size_t kept = trace.steps_.empty() ? 0 : trace.steps_.back().end;
    trace.experts_.resize(trace.batches_[kept].begin);
    trace.rows_.resize(trace.experts_.size());
    trace.batches_.resize(kept);
  }

  std::string_view left_;
  std::string_view line_;
  const std::string& what_;
  int64_t number_ = 0;
  bool cut_ = false;
  int64_t last_layer_ = -1;  // of the step in progress
  std::vector<int32_t> experts_, rows_;
};

Result<ExpertTrace> ExpertTrace::Parse(std::string_view text, const std::string& what) {
  return ExpertTraceParser(text, what).Parse();
}

Result<ExpertTrace> ExpertTrace::Load(const std::string& path) {
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  return Parse(text, path);
}

void ExpertTrace::AddBatch(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows) {
  DFIN_CHECK(layer >= 0 && layer < shape_.layers && !experts.empty(), "no such batch");
  const size_t begin = experts_.size();
  experts_.insert(experts_.end(), experts.begin(), experts.end());
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  rows_.resize(experts_.size(), 1);
  batches_.push_back({layer, begin, experts_.size()});
}

void ExpertTrace::EndStep(int64_t rows) {
  steps_.push_back({rows, steps_.empty() ? 0 : steps_.back().end, batches_.size()});
}

Result<ExpertTraceWriter> ExpertTraceWriter::Create(const std::string& path, const ExpertTraceShape& shape) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kIo, path, ": the expert trace cannot be written: ", std::strerror(errno));
  ExpertTraceWriter writer(path, fd);
  DFIN_TRY_VOID(CheckReplaceable(fd, path));
  struct stat info {};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ftruncate(fd, 0) != 0)
    return Fail(ErrorCode::kIo, path, ": the older trace cannot be emptied: ", std::strerror(errno));
  DFIN_TRY_VOID(writer.Write(Header(shape)));
  return writer;
}

ExpertTraceWriter::ExpertTraceWriter(ExpertTraceWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), step_(std::move(other.step_)) {}

ExpertTraceWriter::~ExpertTraceWriter() {
  if (fd_ >= 0) close(fd_);
}

void ExpertTraceWriter::Add(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows) {
  AppendNumber(step_, layer);
  for (size_t i = 0; i < experts.size(); ++i) {
    step_ += ' ';
    AppendNumber(step_, experts[i]);
    if (rows.empty() || rows[i] == 1) continue;
    step_ += '*';
    AppendNumber(step_, rows[i]);
  }
  step_ += '\n';
}

Status ExpertTraceWriter::EndStep(int64_t rows) {
  step_ += "step ";
  AppendNumber(step_, rows);
  step_ += '\n';
  Status written = Write(step_);
  step_.clear();
  return written;
}

Status ExpertTraceWriter::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd_, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Fail(ErrorCode::kIo, path_, ": the expert trace cannot be written: ", std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return {};
}

}  // namespace deltafin
