// `deltafin inspect`: what a model folder holds, how large it is, and what is missing. Reads no weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/common_options.h"
#include "app/exit_code.h"
#include "app/sampling_options.h"
#include "app/terminal.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/inspect.h"
#include "model/sequence_state.h"
#include "text/tokenizer.h"

namespace deltafin {
namespace {

// Longest list of shards that a person gets to read.
constexpr size_t kShardsShown = 12;

struct InspectOptions {
  std::string model, state_dir;
  std::vector<std::string> experts;
  bool json = false, no_state = false;
};

Json ShardJson(const ShardReport& shard) {
  Json out;
  out["name"] = shard.name;
  out["present"] = shard.present;
  out["text"] = shard.has_text;
  out["needed"] = shard.needed;
  out["bytes"] = shard.bytes;
  out["expected_bytes"] = shard.expected_bytes;
  out["text_tensors"] = shard.text_tensors;
  out["experts_moved_to"] = shard.experts_moved_to.empty() ? Json() : Json(shard.experts_moved_to);
  out["problem"] = shard.problem;
  return out;
}

Json ExpertSetJson(const ExpertSetReport& set) {
  Json out;
  out["set_id"] = set.set_id;
  out["folders"] = set.folders;
  out["generation"] = set.generation;
  out["experts"] = set.experts;
  out["experts_expected"] = set.experts_expected;
  out["reachable"] = set.reachable;
  out["complete"] = set.complete;
  out["warnings"] = set.warnings;
  out["problem"] = set.problem;
  return out;
}

Json SpecJson(const ModelSpec& spec) {
  Json out;
  out["layers"] = spec.layers.size();
  out["kda_layers"] = spec.num_kda_layers;
  out["mla_layers"] = spec.num_mla_layers;
  out["moe_layers"] = spec.num_moe_layers;
  out["hidden_size"] = spec.hidden_size;
  out["experts_per_layer"] = spec.num_experts;
  out["experts_per_token"] = spec.num_experts_per_token;
  out["vocab_size"] = spec.vocab_size;
  out["max_position_embeddings"] = spec.max_position_embeddings;
  out["kda_state_bytes"] = SequenceState::KdaBytes(spec) / 2;
  out["mla_cache_bytes_per_token"] = SequenceState::MlaBytes(spec, 1);
  return out;
}

Json StreamJson(const StreamReport& stream) {
  Json out;
  out["endpoint"] = stream.endpoint;
  out["repository"] = stream.repository;
  out["commit"] = stream.commit;
  out["dense_complete"] = stream.dense_complete;
  out["experts"] = stream.experts;
  out["expert_bytes"] = stream.expert_bytes;
  out["shards_published"] = stream.shards_published;
  out["damaged_entries"] = stream.damaged_entries;
  return out;
}

Json ReportJson(const FolderReport& r) {
  Json out;
  out["folder"] = r.folder;
  out["architecture"] = r.architecture;
  out["complete"] = r.complete;
  out["weights_complete"] = r.weights_complete;
  out["spec"] = r.spec ? SpecJson(*r.spec) : Json();
  out["dense_bytes"] = r.dense_bytes;
  out["expert_bytes"] = r.expert_bytes;
  out["record_bytes"] = r.bytes_per_expert;
  out["text_tensors"] = r.text_tensors;
  out["tensors_missing"] = r.tensors_missing;
  out["tensors_in_expert_set"] = r.tensors_in_set;
  out["examples_missing"] = r.examples_missing;
  out["shards_missing"] = r.shards_missing;
  out["shards_damaged"] = r.shards_damaged;
  out["shards_moved"] = r.shards_moved;
  out["unfinished_download"] = r.unfinished.empty() ? Json() : Json(r.unfinished);
  out["stream"] = r.stream ? StreamJson(*r.stream) : Json();
  out["expert_set"] = r.expert_set ? ExpertSetJson(*r.expert_set) : Json();
  out["shards"] = Json::array();
  for (const ShardReport& shard : r.shards) out["shards"].push_back(ShardJson(shard));
  out["tokenizer_files"] = Json::object();
  for (const FileReport& file : r.tokenizer_files) out["tokenizer_files"][file.name] = file.present;
  out["problems"] = r.problems;
  return out;
}

void PrintSpec(const FolderReport& r) {
  const ModelSpec& s = *r.spec;
  std::printf("%s, %zu layers: %lld KDA, %lld MLA; %lld with experts\n", r.architecture.c_str(), s.layers.size(),
              static_cast<long long>(s.num_kda_layers), static_cast<long long>(s.num_mla_layers),
              static_cast<long long>(s.num_moe_layers));
  std::printf("experts        %lld a layer, %lld a token, %s each, %s in all\n", static_cast<long long>(s.num_experts),
              static_cast<long long>(s.num_experts_per_token), FormatBytes(r.bytes_per_expert).c_str(),
              FormatBytes(r.expert_bytes).c_str());
  std::printf("dense weights  %s\n", FormatBytes(r.dense_bytes).c_str());
  std::printf("a conversation %s of KDA state, %s a token of MLA cache, at most %lld tokens\n",
              FormatBytes(SequenceState::KdaBytes(s) / 2).c_str(), FormatBytes(SequenceState::MlaBytes(s, 1)).c_str(),
              static_cast<long long>(s.max_position_embeddings));
}

void PrintShards(const FolderReport& r) {
  uint64_t bytes = 0;
  const auto present = std::count_if(r.shards.begin(), r.shards.end(), [](const ShardReport& s) { return s.present; });
  for (const ShardReport& shard : r.shards) bytes += shard.bytes;
  std::printf("shards         %lld of %zu present, %s on disk, %lld missing, %lld damaged\n",
              static_cast<long long>(present), r.shards.size(), FormatBytes(bytes).c_str(),
              static_cast<long long>(r.shards_missing), static_cast<long long>(r.shards_damaged));
  size_t shown = 0;
  for (const ShardReport& shard : r.shards) {
    const bool faulty = !shard.problem.empty() || (!shard.present && shard.needed);
    if (!faulty && r.shards.size() > kShardsShown) continue;
    if (!shard.present && !r.unfinished.empty()) continue;  // still to come
    if (++shown > kShardsShown) {
      std::printf("  ... (--json lists all)\n");
      break;
    }
    const std::string state = !shard.problem.empty()             ? shard.problem
                              : !shard.present && shard.has_text ? "absent, all of it is in the expert set"
                              : !shard.present                   ? "absent, not needed for text"
                              : r.stream                         ? "its dense part is there"
                              : shard.experts_moved_to.empty()   ? "whole"
                                                                 : "whole, its experts are in the expert set";
    std::printf("  %s  %s  %lld text tensors  %s\n", Printable(shard.name).c_str(), FormatBytes(shard.bytes).c_str(),
                static_cast<long long>(shard.text_tensors), Printable(state).c_str());
  }
}

void PrintStream(const FolderReport& r) {
  const StreamReport& stream = *r.stream;
  std::printf("fetched        from %s, commit %s: %llu of %lld experts, %s; the others are fetched as they are used\n",
              Printable(stream.repository).c_str(), Printable(stream.commit).c_str(),
              static_cast<unsigned long long>(stream.experts),
              r.spec ? static_cast<long long>(r.spec->num_moe_layers * r.spec->num_experts) : 0LL,
              FormatBytes(stream.expert_bytes).c_str());
  std::printf(
      "  %llu shards are whole, with the checksum that the hub lists; what is there of the others was compared with "
      "none: that needs a whole shard (`deltafin setup` completes them)\n",
      static_cast<unsigned long long>(stream.shards_published));
  if (stream.damaged_entries > 0)
    std::printf("  warning: %llu entries of the presence map are damaged: what they speak of is fetched again\n",
                static_cast<unsigned long long>(stream.damaged_entries));
}

void PrintExpertSet(const FolderReport& r) {
  const ExpertSetReport& set = *r.expert_set;
  std::string folders;
  for (const std::string& folder : set.folders) folders += (folders.empty() ? " in " : ", ") + folder;
  std::printf("expert set     %s%s", set.set_id.c_str(), Printable(folders).c_str());
  if (set.reachable)
    std::printf(": reachable, generation %llu, %lld of %lld experts\n", static_cast<unsigned long long>(set.generation),
                static_cast<long long>(set.experts), static_cast<long long>(set.experts_expected));
  else
    std::printf(": not reachable\n");
  if (r.shards_moved > 0)
    std::printf("  `deltafin pack --move` moved the experts of %lld shards there\n",
                static_cast<long long>(r.shards_moved));
  for (const std::string& warning : set.warnings) std::printf("  warning: %s\n", Printable(warning).c_str());
}

void PrintReport(const FolderReport& r) {
  std::printf("%s\n", r.folder.c_str());
  if (r.spec)
    PrintSpec(r);
  else
    std::printf("no model that this program runs%s%s\n", r.architecture.empty() ? "" : ": ", r.architecture.c_str());
  PrintShards(r);
  if (r.stream) PrintStream(r);
  if (r.expert_set) PrintExpertSet(r);
  if (r.spec) {
    const std::string in_set = r.tensors_in_set == 0 ? "" : Cat(", ", r.tensors_in_set, " of them in the expert set");
    std::printf("tensors        %lld of %lld present%s\n", static_cast<long long>(r.text_tensors - r.tensors_missing),
                static_cast<long long>(r.text_tensors), in_set.c_str());
  }
  for (const std::string& name : r.unfinished.empty() ? r.examples_missing : std::vector<std::string>())
    std::printf("  missing %s\n", Printable(name).c_str());
  std::printf("tokenizer     ");
  for (const FileReport& file : r.tokenizer_files)
    std::printf(" %s%s", file.name.c_str(), file.present ? "" : " (missing)");
  std::printf("\n");
  // A shard's own problem stands in its line.
  for (const std::string& problem : r.problems)
    if (std::ranges::none_of(r.shards, [&](const ShardReport& shard) { return shard.problem == problem; }))
      std::printf("problem: %s\n", Printable(problem).c_str());
  if (r.stream && r.complete) {
    std::printf("ready to run while the hub can be reached; with --offline only experts that were fetched are there\n");
    return;
  }
  std::printf("%s\n", r.complete           ? "complete: ready to run"
                      : r.weights_complete ? "weights complete; without tokenizer files only token ids work"
                                           : "not complete: it cannot run");
}

Result<int> RunInspect(const InspectOptions& o) {
  if (o.no_state && !o.state_dir.empty())
    return Fail(ErrorCode::kInvalidArgument, "--no-state and --state-dir: give one of them");
  const std::string state = o.no_state ? "" : o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  DFIN_TRY(FolderReport report, InspectFolder(o.model, {.folders = o.experts, .state_folder = state}));
  // Being there is not enough: are they files that a tokenizer can be made of?
  if (report.complete) {
    const Result<Tokenizer> tokenizer = Tokenizer::Load(o.model);
    const Result<SamplingParams> sampling = ModelSamplingDefaults(o.model);
    report.complete = tokenizer && sampling;
    if (!tokenizer) report.problems.push_back(tokenizer.error().message());
    if (!sampling) report.problems.push_back(sampling.error().message());
  }
  if (o.json)
    std::printf("%s\n", DumpJson(ReportJson(report)).c_str());
  else
    PrintReport(report);
  if (std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
  return report.weights_complete && report.problems.empty() ? kExitDone : kExitBadModel;
}

}  // namespace

Command AddInspect(CLI::App& root) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* app = root.add_subcommand("inspect", "Say what a model folder holds and what is missing");
  app->add_option("--model", o->model, "Folder of the checkpoint")->required()->type_name("DIR");
  app->add_option("--experts", o->experts,
                  "Folder of its expert set, one for each drive (repeatable; default: those that pack noted)")
      ->type_name("DIR");
  app->add_option("--state-dir", o->state_dir,
                  "Folder for what is kept between runs: pack may have noted folders there")
      ->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Do not look at what is kept between runs");
  app->add_flag("--json", o->json, "One JSON object");
  return {app, [o] { return RunInspect(*o); }};
}

}  // namespace deltafin
