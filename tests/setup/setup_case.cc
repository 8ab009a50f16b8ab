#include "setup/setup_case.h"

#include <cstdlib>
#include <random>

#include "checkpoint/model_files.h"
#include "setup/setup_journal.h"

namespace deltafin::test {

std::string RandomBytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::map<std::string, std::string> SmallRepository() {
  return {{"README.md", "a model\n"},
          {"config.json", "{\"architectures\":[\"Other\"]}"},
          {"empty.txt", ""},
          {"model-1.safetensors", RandomBytes(300'000, 1)},
          {"model-2.safetensors", RandomBytes(64 * 1024, 2)},
          {"model-3.safetensors", RandomBytes(200'001, 3)},
          {"some folder/more.json", "[1, 2]"}};
}

HubAccess::HubAccess(const HubServer& server, double stall_seconds, HubOptions options) {
  HttpClientOptions http_options;
  http_options.proxy = "none";
  http_options.stall_seconds = stall_seconds;
  auto client = HttpClient::Create(http_options);
  if (!client) std::abort();
  http = std::move(*client);
  if (options.repo.empty()) options.repo = HubServer::kRepo;
  options.endpoint = server.url();
  auto made = HubClient::Create(*http, waiter, std::move(options));
  if (!made) std::abort();
  hub = std::move(*made);
  source = MakeHubSource(*hub);
}

SetupOptions OptionsFor(const std::string& folder) {
  SetupOptions options;
  options.to = folder;
  options.any_model = true;
  options.connections = 3;
  options.range_bytes = 64 * 1024;
  return options;
}

std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files = HubServer::FilesOf(folder);
  files.erase(kSetupJournalName);
  files.erase(kModelFilesName);
  return files;
}

std::string FirstDifference(const std::map<std::string, std::string>& expected,
                            const std::map<std::string, std::string>& got) {
  for (const auto& [name, contents] : expected) {
    if (!got.contains(name)) return name + " is missing";
    if (got.at(name) != contents) return name + " differs";
  }
  for (const auto& [name, contents] : got)
    if (!expected.contains(name)) return name + " is too much";
  return "";
}

std::string WrongFile(const std::map<std::string, std::string>& expected,
                      const std::map<std::string, std::string>& got) {
  for (const auto& [name, contents] : got) {
    if (name.ends_with(".part") || name.find(".part-") != std::string::npos) continue;
    if (!expected.contains(name)) return name + " is too much";
    if (expected.at(name) != contents) return name + " differs";
  }
  return "";
}

}  // namespace deltafin::test
