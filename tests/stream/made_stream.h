// made_stream.h: folders that are streamed from a HubServer, and the program run on them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
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
  options.http.stall_seconds = 1;
  options.hub.endpoint = server.endpoint();
  options.hub.repo = HubServer::kRepo;
  options.hub.retry.first_seconds = 0.01;
  options.hub.retry.attempts = 20;
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
