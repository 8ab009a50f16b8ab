#include "bench/child_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "bench/child_process.h"
#include "bench/json_fields.h"
#include "bench/timed_backend.h"
#include "io/kernel_counters.h"

namespace deltafin {
namespace {

constexpr size_t kMostSamples = 1000;  // of a run; then every second one goes and the next come half as often
constexpr double kFirstTick = 0.02;

// Seconds of this process and its machine that are not the child's.
class OtherWork {
 public:
  OtherWork() : begin_(ReadProcessorTimes()) {}

  void Finish(const ChildExit& child, BenchRun* run) const {
    const std::optional<ProcessorTimes> end = ReadProcessorTimes();
    if (!begin_ || !end) return;
    run->other_processor_seconds = std::max(0.0, end->busy_seconds - begin_->busy_seconds - child.processor_seconds);
    run->stolen_seconds = std::max(0.0, end->stolen_seconds - begin_->stolen_seconds);
  }

 private:
  std::optional<ProcessorTimes> begin_;
};

// What the kernel read from each device since the process began.
class DeviceSampler {
 public:
  DeviceSampler(const std::vector<BenchDevice>& devices, BenchRun* run)
      : devices_(devices), run_(run), begin_(Read()) {}

  void Sample(double seconds) {
    if (begin_.empty() || seconds < next_) return;
    next_ = seconds + period_;
    run_->samples.push_back({seconds, SinceBegin()});
    if (run_->samples.size() < kMostSamples) return;
    for (size_t i = 0; 2 * i + 1 < run_->samples.size(); ++i) run_->samples[i] = run_->samples[2 * i + 1];
    run_->samples.resize(run_->samples.size() / 2);
    period_ *= 2;
  }

  void Finish(double seconds) {
    if (begin_.empty()) return;
    run_->kernel_bytes = SinceBegin();
    run_->samples.push_back({seconds, run_->kernel_bytes});
  }

 private:
  // Empty unless every device has counters.
  std::vector<uint64_t> Read() const {
    std::vector<uint64_t> bytes;
    for (const BenchDevice& device : devices_) {
      const std::optional<DeviceCounters> counters = ReadDeviceCounters(device.counters);
      if (!counters) return {};
      bytes.push_back(counters->bytes_read);
    }
    return bytes;
  }

  std::vector<uint64_t> SinceBegin() const {
    std::vector<uint64_t> now = Read();
    now.resize(begin_.size());
    for (size_t i = 0; i < now.size(); ++i) now[i] -= std::min(now[i], begin_[i]);
    return now;
  }

  const std::vector<BenchDevice>& devices_;
  BenchRun* const run_;
  const std::vector<uint64_t> begin_;
  double next_ = 0, period_ = kFirstTick;
};

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

// As src/app/exit_code.h has it.
ErrorCode CodeOf(const ChildExit& exit) {
  switch (exit.code) {
    case 2:
      return ErrorCode::kInvalidArgument;
    case 3:
      return ErrorCode::kCorrupt;
    case 4:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kIo;
  }
}

Status CheckExit(const ChildExit& exit) {
  constexpr int kInterrupted = 130;
  if (exit.cancelled || exit.code == kInterrupted) return Fail(ErrorCode::kCancelled, "interrupted");
  if (exit.good()) return {};
  const std::string line = LastLine(exit.errors);
  const std::string how = exit.signal != 0 ? Cat("signal ", exit.signal) : Cat("exit code ", exit.code);
  return Fail(CodeOf(exit), "the run ended with ", how, line.empty() ? "" : ": ", line);
}

}  // namespace

void RunEvents::Add(std::string_view line, double seconds) {
  if (!status_ || line.empty()) return;
  Result<Json> event = ParseJson(line, "event of the run");
  if (!event) {
    status_ = Fail(ErrorCode::kInternal, event.error().message());
    return;
  }
  const std::string kind = TextOf(*event, "event");
  if (kind == "token") AddToken(*event, seconds);
  if (kind == "stats") AddStats(*event);
}

void RunEvents::AddToken(const Json& event, double seconds) {
  text_ += TextOf(event, "text");
  const Json& id = Member(event, "id");
  if (!id.is_number_integer()) return;  // text that was held back
  const bool first = run_.ids.empty();
  if (first) run_.first_token_at = seconds;
  run_.ids.push_back(id.get<TokenId>());
  (first ? wait_prompt_ : wait_decoding_) += NumberOf(event, "seconds_expert_wait");
  (first ? dense_prompt_ : dense_decoding_) += NumberOf(event, "seconds_dense_wait");
}

void RunEvents::AddStats(const Json& event) {
  has_stats_ = true;
  run_.prompt_tokens = static_cast<int64_t>(CountOf(event, "prompt_tokens"));
  run_.seconds_load = NumberOf(event, "seconds_load");
  run_.seconds_first_token = NumberOf(event, "seconds_first_token");
  run_.seconds_total = NumberOf(event, "seconds_total");
  run_.peak_rss_bytes = CountOf(event, "peak_rss_bytes");
  run_.engine = TextOf(event, "engine");
  run_.payload_bytes = CountOf(event, "expert_bytes_demand") + CountOf(event, "expert_bytes_prefetch_useful") +
                       CountOf(event, "expert_bytes_prefetch_wasted") + CountOf(event, "dense_bytes_read");
  for (const Json& drive : ListOf(event, "drives")) {
    run_.own_drives.push_back({TextOf(drive, "name"), CountOf(drive, "bytes"), NumberOf(drive, "seconds_busy")});
    run_.own_bytes += run_.own_drives.back().bytes;
  }
  double drafting = 0;
  for (const Json& drafter : ListOf(Member(event, "drafts"), "drafters")) {
    run_.drafted += CountOf(drafter, "drafted");
    run_.drafted_right += CountOf(drafter, "right");
    drafting += NumberOf(drafter, "seconds") + NumberOf(drafter, "seconds_observing");
  }
  run_.time = {{"waiting for experts", wait_prompt_, wait_decoding_},
               {"waiting for dense weights", dense_prompt_, dense_decoding_},
               {"drafting", 0, drafting}};
  const Json& operations = Member(event, "seconds_by_operation");
  for (size_t i = 0; i < kTimedOperations; ++i) {
    const char* name = TimedOperationName(static_cast<TimedOperation>(i));
    const Json& operation = Member(operations, name);
    run_.time.push_back({name, NumberOf(operation, "prompt"), NumberOf(operation, "decoding")});
  }
}

Status RunEvents::Finish() {
  DFIN_TRY_VOID(status_);
  if (!has_stats_ || run_.ids.empty() || run_.seconds_total <= 0 || run_.seconds_first_token <= 0)
    return Fail(ErrorCode::kInternal, "the run ended well but without figures");
  TimePart rest{"everything else", run_.seconds_first_token, run_.seconds_total - run_.seconds_first_token};
  for (const TimePart& part : run_.time) {
    rest.prompt -= part.prompt;
    rest.decoding -= part.decoding;
  }
  rest.prompt = std::max(0.0, rest.prompt);
  rest.decoding = std::max(0.0, rest.decoding);
  run_.time.push_back(rest);
  run_.ids_sha256 = IdsSha256(run_.ids);
  if (!text_.empty()) run_.text_sha256 = Sha256Hex(text_);
  return {};
}

std::vector<std::string> OptionNames(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const std::string& argument : arguments)
    if (argument.rfind("--", 0) == 0) names.push_back(argument.substr(0, argument.find('=')));
  return names;
}

std::vector<std::string> ArmArguments(const std::vector<std::string>& common, const BenchArm& arm) {
  const std::vector<std::string> own = OptionNames(arm.arguments);
  std::vector<std::string> out;
  for (const std::string& argument : common)
    if (std::find(own.begin(), own.end(), argument.substr(0, argument.find('='))) == own.end()) out.push_back(argument);
  out.insert(out.end(), arm.arguments.begin(), arm.arguments.end());
  return out;
}

std::vector<std::string> ChildArguments(const std::vector<std::string>& common, const RunRequest& request) {
  std::vector<std::string> out = {"run"};
  for (std::string& argument : ArmArguments(common, request.arm)) out.push_back(std::move(argument));
  std::string ids;
  for (const TokenId id : request.prompt.ids) {
    if (!ids.empty()) ids += ',';
    ids += std::to_string(id);
  }
  for (const char* flag : {"--no-state", "--quiet", "--json", "--time-operations", "--ignore-end"}) out.push_back(flag);
  out.push_back(Cat("--max-new=", request.new_tokens));
  out.push_back(Cat("--prompt-ids=", ids));
  return out;
}

BenchRunner CreateChildRunner(std::string program, std::vector<std::string> common) {
  return [program = std::move(program), common = std::move(common)](const RunRequest& request) -> Result<BenchRun> {
    BenchRun run;
    run.arm = request.arm.name;
    run.prompt = request.prompt.name;
    run.new_tokens = request.new_tokens;
    run.round = request.round;
    const OtherWork others;
    DeviceSampler sampler(request.devices, &run);
    RunEvents events(run);
    ChildOptions options;
    options.program = program;
    options.arguments = ChildArguments(common, request);
    options.on_line = [&](std::string_view line, double seconds) { events.Add(line, seconds); };
    options.on_tick = [&](double seconds) { sampler.Sample(seconds); };
    options.tick_seconds = kFirstTick;
    options.cancel = request.cancel;
    DFIN_TRY(const ChildExit exit, RunChild(options));
    DFIN_TRY_VOID(CheckExit(exit));
    sampler.Finish(exit.seconds);
    others.Finish(exit, &run);
    run.seconds_process = exit.seconds;
    DFIN_TRY_VOID(events.Finish());
    return run;
  };
}

}  // namespace deltafin
