// Models that are not all here: downloads that stopped, and folders whose experts are fetched as they are used.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "doctor/doctor_case.h"
#include "pack/pack_case.h"
#include "setup/setup_journal.h"
#include "stream/made_stream.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
constexpr auto kFault = FindingState::kFault;

// What an interrupted setup leaves: its journal, whole files, and one that is not.
void Interrupt(const std::string& folder, const Json& source) {
  Json header;
  header["source"] = source;
  header["commit"] = std::string(40, 'a');
  ASSERT_TRUE(SetupJournal::Open(folder, header.dump(), {}, {}));
  for (int shard = 4; shard <= 9; ++shard)
    fs::remove(folder + "/model-0000" + std::to_string(shard) + "-of-000010.safetensors");
  fs::remove(folder + "/tokenizer_config.json");
  fs::rename(folder + "/model-00010-of-000010.safetensors", folder + "/model-00010-of-000010.safetensors.part");
}

TEST(Download, ThatStoppedIsOneFaultWithTheCommandThatGoesOn) {
  const TempFolder root;
  const std::string model = root.path() + "/model";
  LinkNano(model);
  Interrupt(model, {{"repo", "made/k3-nano"}, {"revision", "main"}});
  const std::vector<Finding> findings = Examine(OptionsFor(model), PlantedHost());
  // config, index, two of three tokenizer files, three of ten shards
  ExpectFinding(findings, kFault, "setup.unfinished", "unfinished download of made/k3-nano, 7 of 15 files, 1 partly");
  EXPECT_EQ(Named(findings, "setup.unfinished").fix, "deltafin setup --repo made/k3-nano --to " + model);
  int faults = 0;
  for (const Finding& f : findings) faults += f.state == kFault ? 1 : 0;
  EXPECT_EQ(faults, 1) << Problems(findings);
}

TEST(Download, FromAFolderNamesTheFolder) {
  const TempFolder root;
  const std::string model = root.path() + "/model";
  LinkNano(model);
  Interrupt(model, {{"folder", "/mnt/a copy"}});
  EXPECT_EQ(Named(Examine(OptionsFor(model), PlantedHost()), "setup.unfinished").fix,
            "deltafin setup --from-folder '/mnt/a copy' --to " + model);
}

TEST(Download, WithADamagedJournalStillIsOne) {
  const TempFolder root;
  const std::string model = root.path() + "/model";
  LinkNano(model);
  Interrupt(model, {{"repo", "made/k3-nano"}});
  WriteFileBytes(model + "/" + kSetupJournalName, "nonsense");
  const std::vector<Finding> findings = Examine(OptionsFor(model), PlantedHost());
  ExpectFinding(findings, kFault, "setup.unfinished", "unfinished download, 7 of 15 files");
  EXPECT_NE(Named(findings, "setup.unfinished").advice, "");
}

TEST(Download, ThatEndedIsNone) {
  const TempFolder root;
  const std::string model = root.path() + "/model";
  LinkNano(model);
  ASSERT_TRUE(SetupJournal::Open(model, "{\"source\": {\"repo\": \"made/k3-nano\"}}", {}, {}));
  EXPECT_EQ(Problems(Examine(OptionsFor(model), PlantedHost())), "");
  fs::remove(model + "/model-00003-of-000010.safetensors");
  EXPECT_EQ(Named(Examine(OptionsFor(model), PlantedHost()), "setup.unfinished").fix,
            "deltafin setup --repo made/k3-nano --to " + model);
}

TEST(Streamed, AFolderWithItsDensePartOnlyIsInOrder) {
  const HubServer server(NanoModel());
  const TempFolder folder;
  MakeStream(server, folder.path());
  DoctorOptions options = OptionsFor(folder.path());
  options.quick = false;
  options.self_test_model = NanoModel();
  const std::vector<Finding> findings = Examine(options, PlantedHost());
  EXPECT_EQ(Problems(findings), "");
  ExpectFinding(findings, FindingState::kNote, "model.streamed", "0 of 768 experts here");
  ExpectFinding(findings, FindingState::kOk, "start.plan");
  const auto fetching = StreamFolder::Open(folder.path(), StreamFolder::Use::kFetch);
  ASSERT_TRUE(fetching);
  ExpectFinding(Examine(options, PlantedHost()), FindingState::kNote, "start.not-tried", "another deltafin");
}

TEST(Streamed, AnUnfinishedDensePartIsADownloadThatStopped) {
  const HubServer server(NanoModel());
  const TempFolder folder;
  MakeStream(server, folder.path());
  const std::string path = folder.path() + "/" + kStreamManifestName;
  Result<StreamManifest> manifest = ReadStreamManifest(folder.path());
  ASSERT_TRUE(manifest);
  manifest->dense_complete = false;
  WriteFileBytes(path, manifest->ToText());
  const std::vector<Finding> findings = Examine(OptionsFor(folder.path()), PlantedHost());
  ExpectFinding(findings, kFault, "setup.unfinished", "dense part of made/k3-nano");
  EXPECT_EQ(Named(findings, "setup.unfinished").fix, "deltafin setup --dense-only --repo made/k3-nano --endpoint " +
                                                         server.endpoint() + " --to " + folder.path());
}

}  // namespace
}  // namespace deltafin::test
