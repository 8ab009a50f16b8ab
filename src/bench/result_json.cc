#include "bench/result_json.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/json_fields.h"

namespace deltafin {
namespace {

constexpr const char* kFormat = "deltafin-bench-run";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr const char* kSteadyKey = "tokens_per_second_steady";
constexpr const char* kInclusiveKey = "tokens_per_second_inclusive";
constexpr const char* kWithLoadKey = "tokens_per_second_inclusive_with_load";
constexpr const char* kFirstKey = "seconds_first_token";

Json NumberOrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json ToJson(const Series& series) {
  if (series.values.empty()) return nullptr;
  const Spread s = series.spread();
  Json out = {{"median", s.median},
              {"min", s.min},
              {"max", s.max},
              {"quartile_low", s.quartile_low},
              {"quartile_high", s.quartile_high}};
  out["again_low"] = s.again_high <= 0 ? Json(nullptr) : Json(s.again_low);
  out["again_high"] = s.again_high <= 0 ? Json(nullptr) : Json(s.again_high);
  out["values"] = series.values;
  return out;
}

Json TimeToJson(const std::vector<TimePart>& parts) {
  Json out = Json::object();
  for (const TimePart& part : parts) out[part.name] = {{"prompt", part.prompt}, {"decoding", part.decoding}};
  return out;
}

Json ToJson(const CaseFigures& f) {
  Json out = {{"arm", f.arm}, {"prompt", f.prompt}, {"prompt_tokens", f.prompt_tokens}, {"new_tokens", f.new_tokens}};
  out["rounds"] = f.rounds;
  out[kSteadyKey] = ToJson(f.steady);
  out[kInclusiveKey] = ToJson(f.inclusive);
  out[kWithLoadKey] = ToJson(f.with_load);
  out[kFirstKey] = ToJson(f.first_token);
  out["seconds_load"] = f.seconds_load;
  out["ids_sha256"] = f.ids_sha256;
  out["text_sha256"] = f.text_sha256.empty() ? Json(nullptr) : Json(f.text_sha256);
  out["device_bytes"] = f.own_bytes;
  out["payload_bytes"] = f.payload_bytes;
  out["kernel_bytes"] = NumberOrNull(f.kernel_bytes);
  out["kernel_over_device_bytes"] = NumberOrNull(f.kernel_over_own);
  out["drafted"] = f.drafted;
  out["drafted_right"] = f.drafted_right;
  out["peak_rss_bytes"] = f.peak_rss_bytes;
  out["seconds_by_part"] = TimeToJson(f.time);
  return out;
}

Json ToJson(const BenchRun& run) {
  Json out = {{"arm", run.arm}, {"prompt", run.prompt}, {"new_tokens", run.new_tokens}, {"round", run.round}};
  out["warm_up"] = run.round == 0;
  out["ids_sha256"] = run.ids_sha256;
  out["text_sha256"] = run.text_sha256.empty() ? Json(nullptr) : Json(run.text_sha256);
  out[kSteadyKey] = run.steady();
  out[kInclusiveKey] = run.inclusive();
  out[kWithLoadKey] = run.inclusive_with_load();
  out[kFirstKey] = run.seconds_first_token;
  out["seconds_total"] = run.seconds_total;
  out["seconds_load"] = run.seconds_load;
  out["seconds_process"] = run.seconds_process;
  out["seconds_to_first_token_seen"] = run.first_token_at;
  out["device_bytes"] = run.own_bytes;
  out["payload_bytes"] = run.payload_bytes;
  out["drives"] = Json::array();
  for (const OwnDrive& drive : run.own_drives)
    out["drives"].push_back({{"name", drive.name}, {"bytes", drive.bytes}, {"seconds_busy", drive.seconds_busy}});
  out["kernel_bytes"] = run.kernel_bytes.empty() ? Json(nullptr) : Json(run.kernel_bytes);
  out["other_processor_seconds"] = NumberOrNull(run.other_processor_seconds);
  out["stolen_seconds"] = NumberOrNull(run.stolen_seconds);
  out["drafted"] = run.drafted;
  out["drafted_right"] = run.drafted_right;
  out["peak_rss_bytes"] = run.peak_rss_bytes;
  out["engine"] = run.engine;
  out["seconds_by_part"] = TimeToJson(run.time);
  out["ids"] = run.ids;
  return out;
}

// Curves of devices, for the run of each case that lies in the middle.
Json SamplesToJson(const BenchResult& result, const std::vector<CaseFigures>& figures) {
  Json out = Json::array();
  for (const CaseFigures& f : figures) {
    const BenchRun* run = MiddleRun(result, f);
    if (run == nullptr || run->samples.empty()) continue;
    Json curve = {{"arm", f.arm}, {"prompt", f.prompt}, {"new_tokens", f.new_tokens}, {"round", run->round}};
    curve["samples"] = Json::array();
    for (const DriveSample& sample : run->samples) curve["samples"].push_back({sample.seconds, sample.bytes});
    out.push_back(std::move(curve));
  }
  return out;
}

Json ToJson(const MachineDescription& m) {
  Json out = {{"processor", m.processor},
              {"architecture", m.architecture},
              {"processors", m.processors},
              {"processor_quota", m.processor_quota > 0 ? Json(m.processor_quota) : Json(nullptr)},
              {"memory_bytes", m.memory_bytes},
              {"memory_available_bytes", m.memory_available_bytes},
              {"swap_bytes", m.swap_bytes},
              {"system", m.system},
              {"governor", m.governor},
              {"huge_pages", m.huge_pages}};
  out["limits"] = Json::object();
  for (const auto& [name, value] : m.limits) out["limits"][name] = value;
  return out;
}

Json ProtocolToJson(const BenchResult& result) {
  Json out = {{"rounds", result.rounds}, {"warm_ups", result.warm_ups}, {"cold", result.cold}};
  out["order"] =
      "arms take turns, rotated by one from round to round, backwards in every second cycle (two arms: AB BA BA AB)";
  out["steady"] = "new tokens after the first over the time after the first";
  out["inclusive"] = "all new tokens over the time from the request to the last one, prompt included, loading not";
  out["inclusive_with_load"] =
      "all new tokens over the time from the start of loading to the last one; the published inclusive rates hold the "
      "engine's start";
  out["answers"] = result.answers;
  out["first_token"] = "seconds from the request to the first new token, loading not included";
  out["again"] = "where the median of another run of as many rounds on this machine lies in 99 % of cases";
  return out;
}

Json PromptsToJson(const BenchResult& result) {
  Json out = Json::array();
  for (const BenchPrompt& p : result.prompts)
    out.push_back({{"name", p.name}, {"tokens", p.ids.size()}, {"ids_sha256", p.ids_sha256}, {"lengths", p.lengths}});
  return out;
}

// Of a file from elsewhere: without what a terminal would obey, in one line.
std::string PlainText(const Json& object, const char* key) {
  std::string text = TextOf(object, key);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

bool IsState(const std::string& text) {
  for (const BenchState state : {BenchState::kComplete, BenchState::kPartial, BenchState::kVoided})
    if (text == ToString(state)) return true;
  return false;
}

Status ReadSeries(const Json& figures, const char* key, size_t rounds, Series* series) {
  const Json& values = ListOf(Member(figures, key), "values");
  for (const Json& value : values) {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0 && number < 1e15)) return Fail(ErrorCode::kCorrupt, key, ": expected positive numbers");
    series->values.push_back(number);
  }
  const bool is_there = !Member(figures, key).is_null();
  if ((is_there || !series->values.empty()) && series->values.size() != rounds)
    return Fail(ErrorCode::kCorrupt, key, ": expected a value for each of ", rounds, " rounds, got ",
                series->values.size());
  const double median = series->spread().median;
  if (is_there && std::abs(NumberOf(Member(figures, key), "median", median) - median) > 1e-6 * std::abs(median))
    return Fail(ErrorCode::kCorrupt, key, ": its median is not that of its values");
  return {};
}

Result<CaseFigures> ReadFigures(const Json& from) {
  CaseFigures out;
  out.arm = PlainText(from, "arm");
  out.prompt = PlainText(from, "prompt");
  out.new_tokens = static_cast<int64_t>(CountOf(from, "new_tokens") & 0x7fffffff);
  out.prompt_tokens = static_cast<int64_t>(CountOf(from, "prompt_tokens") & 0x7fffffff);
  out.ids_sha256 = PlainText(from, "ids_sha256");
  for (const Json& round : ListOf(from, "rounds"))
    out.rounds.push_back(round.is_number_unsigned() ? static_cast<int>(round.get<uint64_t>() & 0xffffff) : 0);
  if (out.prompt.empty() || out.rounds.empty()) return Fail(ErrorCode::kCorrupt, "expected a prompt and rounds");
  DFIN_TRY_VOID(ReadSeries(from, kSteadyKey, out.rounds.size(), &out.steady));
  DFIN_TRY_VOID(ReadSeries(from, kInclusiveKey, out.rounds.size(), &out.inclusive));
  DFIN_TRY_VOID(ReadSeries(from, kFirstKey, out.rounds.size(), &out.first_token));
  if (out.inclusive.values.empty()) return Fail(ErrorCode::kCorrupt, kInclusiveKey, ": missing");
  return out;
}

MachineDescription ReadMachine(const Json& document) {
  const Json& from = Member(document, "machine");
  const Json& program = Member(document, "program");
  MachineDescription out;
  out.program = {PlainText(program, "version"), PlainText(program, "commit"), PlainText(program, "compiler"),
                 PlainText(program, "build")};
  out.processor = PlainText(from, "processor");
  out.architecture = PlainText(from, "architecture");
  out.processors = static_cast<int>(CountOf(from, "processors") & 0xffffff);
  out.memory_bytes = CountOf(from, "memory_bytes");
  out.system = PlainText(from, "system");
  out.governor = PlainText(from, "governor");
  out.huge_pages = PlainText(from, "huge_pages");
  return out;
}

}  // namespace

Json ResultToJson(const BenchResult& result) {
  Json out = {{"format", kFormat}, {"version", kVersion}, {"state", ToString(result.state)}};
  out["reason"] = result.reason.empty() ? Json(nullptr) : Json(result.reason);
  out["started"] = result.started;
  out["seconds"] = result.seconds;
  out["command"] = result.command;
  out["model"] = {{"folder", result.model}, {"config_sha256", result.model_sha256}};
  const ProgramDescription& p = result.machine.program;
  out["program"] = {{"version", p.version}, {"commit", p.commit}, {"compiler", p.compiler}, {"build", p.build}};
  out["machine"] = ToJson(result.machine);
  out["load_average_start"] = NumberOrNull(result.load_average_start);
  out["load_average_end"] = NumberOrNull(result.load_average_end);
  out["protocol"] = ProtocolToJson(result);
  out["arms"] = Json::array();
  for (const BenchArm& arm : result.arms)
    out["arms"].push_back({{"name", arm.name}, {"arguments", arm.arguments}, {"inexact", arm.inexact}});
  out["prompts"] = PromptsToJson(result);
  out["devices"] = Json::array();
  for (const BenchDevice& d : result.devices)
    out["devices"].push_back({{"name", d.name},
                              {"model", d.model},
                              {"file_system", d.file_system},
                              {"folders", d.folders},
                              {"counted", !d.counters.empty()}});
  const std::vector<CaseFigures> figures = FiguresOf(result);
  out["results"] = Json::array();
  for (const CaseFigures& f : figures) out["results"].push_back(ToJson(f));
  out["warnings"] = result.warnings;
  out["curves"] = SamplesToJson(result, figures);
  out["runs"] = Json::array();
  for (const BenchRun& run : result.runs) out["runs"].push_back(ToJson(run));
  return out;
}

Result<BenchFile> ParseBenchFile(std::string_view text, const std::string& name) {
  DFIN_TRY(const Json document, ParseJson(text, name));
  if (TextOf(document, "format") != kFormat)
    return Fail(ErrorCode::kCorrupt, name, ": expected a result of bench run, got something else");
  if (CountOf(document, "version") != kVersion)
    return Fail(ErrorCode::kUnsupported, name, ": expected version ", kVersion, " of the format, got ",
                CountOf(document, "version"));
  BenchFile out;
  out.name = name;
  out.state = PlainText(document, "state");
  if (!IsState(out.state))
    return Fail(ErrorCode::kCorrupt, name, ": state: expected complete, partial or voided, got ", out.state);
  out.reason = PlainText(document, "reason");
  out.started = PlainText(document, "started");
  out.model_sha256 = PlainText(Member(document, "model"), "config_sha256");
  out.machine = ReadMachine(document);
  out.rounds = static_cast<int>(CountOf(Member(document, "protocol"), "rounds") & 0xffffff);
  for (const Json& arm : ListOf(document, "arms"))
    out.arms.push_back({PlainText(arm, "name"), {}, FlagOf(arm, "inexact")});
  for (const Json& prompt : ListOf(document, "prompts"))
    out.prompt_sha256[PlainText(prompt, "name")] = PlainText(prompt, "ids_sha256");
  for (const Json& from : ListOf(document, "results")) {
    Result<CaseFigures> figures = ReadFigures(from);
    if (!figures) return FailWith(std::move(figures), name + ": results");
    out.figures.push_back(std::move(*figures));
  }
  return out;
}

Result<BenchFile> ReadBenchFile(const std::string& path) {
  std::error_code failed;
  const std::string file = std::filesystem::is_directory(path, failed) ? path + "/bench.json" : path;
  DFIN_TRY(const std::string text, ReadWholeFile(file, kMostBytes));
  return ParseBenchFile(text, file);
}

}  // namespace deltafin
