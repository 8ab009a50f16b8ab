// made_stream.h: folders that are streamed from a HubServer, and the program run on them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "app/setup_stream.h"
#include "base/json.h"
#include "checkpoint/stream_folder.h"
#include "stream/hub_server.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin::test {

inline std::string NanoModel() { return RepoPath("models/k3-nano"); }

inline StreamSetupOptions SetupOf(const HubServer& server, const std::string& to, bool dense_only = true) {
  StreamSetupOptions options;
  options.access.http.stall_seconds = 1;
  options.access.hub.endpoint = server.endpoint();
  options.access.hub.repo = HubServer::kRepo;
  options.access.hub.retry.first_seconds = 0.01;
  options.access.hub.retry.attempts = 20;
  options.to = to;
  options.dense_only = dense_only;
  options.quiet = true;
  return options;
}

// Its dense part, without faults.
inline void MakeStream(const HubServer& server, const std::string& to) {
  const Result<int> made = RunStreamSetup(SetupOf(server, to));
  ASSERT_TRUE(made) << made.error().message();
}

// Everything that the folder says it has, byte for byte as in the repository's model; how many ranges that are.
inline size_t ExpectStoredBytes(const std::string& folder) {
  const auto opened = StreamFolder::Open(folder, StreamFolder::Use::kRead);
  EXPECT_TRUE(opened) << opened.error().message();
  if (!opened) return 0;
  size_t ranges = 0;
  for (int32_t file = 0; file < static_cast<int32_t>((*opened)->manifest().files.size()); ++file) {
    const std::string& name = (*opened)->manifest().files[static_cast<size_t>(file)].name;
    const std::string right = ReadWholeFile(NanoModel() + "/" + name, uint64_t{1} << 30).value();
    const std::string here = ReadWholeFile((*opened)->PathOf(file), uint64_t{1} << 30).value();
    for (const PresenceEntry& entry : (*opened)->Ranges(file)) {
      const FileRange& range = entry.range;
      EXPECT_EQ(here.compare(range.offset, range.bytes, right, range.offset, range.bytes), 0)
          << name << ", " << range.bytes << " bytes at " << range.offset;
      ++ranges;
    }
  }
  return ranges;
}

inline void ExpectEveryKindHappened(const HubFaults& asked, const HubFaults& happened) {
  for (const auto& [kind, percent, count] :
       {std::tuple("drop", asked.drop, happened.drop), std::tuple("truncate", asked.truncate, happened.truncate),
        std::tuple("error", asked.error, happened.error), std::tuple("busy", asked.busy, happened.busy),
        std::tuple("flip", asked.flip, happened.flip), std::tuple("stall", asked.stall, happened.stall)})
    EXPECT_EQ(count > 0, percent > 0) << kind << ": " << count;
}

// Every file of the repository's model, byte for byte, and nothing else.
inline void ExpectComplete(const std::string& folder) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NanoModel())) {
    const std::string name = entry.path().filename().string();
    const Result<std::string> here = ReadWholeFile(folder + "/" + name, uint64_t{1} << 30);
    ASSERT_TRUE(here) << name;
    EXPECT_TRUE(*here == ReadWholeFile(entry.path().string(), uint64_t{1} << 30).value()) << name;
    ++files;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    --files;
  }
  EXPECT_EQ(files, 0u) << "something was left in the folder";
}

inline ProcessResult Deltafin(std::vector<std::string> arguments, ProcessOptions options = {}) {
  options.arguments = std::move(arguments);
  return RunProcess(DELTAFIN_PROGRAM, options);
}

struct GreedyCase {
  std::string prompt_ids, new_ids;
  size_t count = 0;
};
inline GreedyCase ExpectedGreedy(size_t number) {
  const Json c = (*ReadJsonFile(NanoModel() + "/expected_greedy.json"))[number];
  GreedyCase out;
  const auto append = [](std::string& text, const char* separator, const Json& id) {
    if (!text.empty()) text += separator;
    text += std::to_string(id.get<int>());
  };
  for (const Json& id : c["prompt_ids"]) append(out.prompt_ids, ",", id);
  for (const Json& id : c["new_ids"]) append(out.new_ids, " ", id);
  out.new_ids += "\n";
  out.count = c["new_ids"].size();
  return out;
}

inline ProcessResult RunGreedy(const std::string& model, const GreedyCase& c, std::vector<std::string> more = {},
                               ProcessOptions options = {}) {
  std::vector<std::string> arguments = {"run",        "--model", model,       "--prompt-ids",
                                        c.prompt_ids, "--ids",   "--max-new", std::to_string(c.count),
                                        "--no-state"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Deltafin(std::move(arguments), std::move(options));
}

}  // namespace deltafin::test
