// What a download finds in its folder, and what it leaves there: files of others, of an earlier call, of another setup
// at work; the list of checksums; copies of folders, and the hub's own cache.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/digest.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_files.h"
#include "checkpoint/unfinished_download.h"
#include "pack/folder_locks.h"
#include "pack/model_file_check.h"
#include "pack/pack_case.h"
#include "setup/hub_cache.h"
#include "setup/setup.h"
#include "setup/setup_fixture.h"
#include "setup/setup_journal.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

std::string ChecksumOf(const std::string& name, const std::string& contents) {
  const bool large = name.ends_with(".safetensors");
  Digest digest = large ? *Digest::Sha256() : *Digest::GitSha1(contents.size());
  EXPECT_TRUE(digest.Add(std::as_bytes(std::span(contents))));
  return *digest.Finish();
}

TEST_F(SetupTest, ASecondSetupAtWorkOnAFolderIsRefused) {
  fs::create_directories(to());
  {
    FolderLocks locks;
    ASSERT_TRUE(locks.Take({to()}, FolderLocks::Kind::kWrites));
    ExpectRefused(Fetch(), ErrorCode::kUnavailable, "expected to be alone");
    EXPECT_TRUE(fs::is_empty(to()));
  }
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, OfTwoSetupsOnAFolderThatIsNotThereYetOneBringsItAndTheOtherIsRefusedOrFindsIt) {
  server_.Disturb([](const HubRequest& r, HubAnswer&) {
    if (r.file.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  for (int round = 0; round < 10; ++round) {
    fs::remove_all(to());
    std::vector<Result<SetupReport>> ended(2, Failure(Error(ErrorCode::kInternal, "")));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        std::this_thread::sleep_for(std::chrono::milliseconds(round * 10 * static_cast<int>(i)));
        HubAccess access(server_, 5);
        ended[i] = FetchModel(*access.source, OptionsFor(to()), {}, {});
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(ended[0] || ended[1]);
    for (const auto& report : ended) {
      if (report) continue;
      EXPECT_EQ(report.error().code(), ErrorCode::kUnavailable) << report.error().message();
      EXPECT_NE(report.error().message().find("alone"), std::string::npos) << report.error().message();
    }
    ExpectWhole();
  }
}

TEST_F(SetupTest, ASecondCallFetchesNothing) {
  ASSERT_TRUE(Fetch());
  const size_t before = server_.requests().size();
  const auto report = Fetch();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->files_there, 7u);
  EXPECT_EQ(report->bytes_received, 0u);
  for (size_t i = before; i < server_.requests().size(); ++i) EXPECT_EQ(server_.requests()[i].file, "");
}

TEST_F(SetupTest, KeepsTheChecksumsThatTheHubLists) {
  ASSERT_TRUE(Fetch());
  const auto list = KnownModelFiles(to());
  ASSERT_TRUE(list && *list);
  EXPECT_EQ((*list)->repository, HubServer::kRepo);
  EXPECT_EQ((*list)->commit, HubServer::kCommit);
  EXPECT_EQ((*list)->files.size(), server_.files().size());
  for (const auto& [name, contents] : server_.files()) {
    const ModelFile* const file = (*list)->Find(name);
    ASSERT_NE(file, nullptr) << name;
    EXPECT_EQ(file->bytes, contents.size());
    EXPECT_EQ(file->sha256 + file->git_sha1, ChecksumOf(name, contents)) << name;
    EXPECT_TRUE(CheckModelFile(to() + "/" + name, *file, {}, {}));
  }
  FlipByte(to() + "/model-2.safetensors", 9);
  EXPECT_EQ(CheckModelFile(to() + "/model-2.safetensors", *(*list)->Find("model-2.safetensors"), {}, {}).error().code(),
            ErrorCode::kCorrupt);
}

// Damage that leaves size and time: a bad drive.
TEST_F(SetupTest, SaysWhatItDidNotReadAgainAndReadsItWhenToldTo) {
  ASSERT_TRUE(Fetch());
  const auto time = fs::last_write_time(to() + "/model-1.safetensors");
  FlipByte(to() + "/model-1.safetensors", 5);
  fs::last_write_time(to() + "/model-1.safetensors", time);
  const auto trusting = Fetch();
  ASSERT_TRUE(trusting) << trusting.error().message();
  EXPECT_EQ(trusting->files_unread, 7u);
  SetupOptions options = OptionsFor(to());
  options.verify_again = true;
  const auto reading = Fetch(options);
  ASSERT_FALSE(reading);
  EXPECT_NE(reading.error().message().find("model-1.safetensors"), std::string::npos) << reading.error().message();
}

TEST_F(SetupTest, AnUnfinishedFolderSaysWhatIsMissingAndHowToGoOn) {
  EXPECT_EQ(UnfinishedDownload(to()), "");
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.file == "model-3.safetensors" && r.to_content_port) a.cut_at = 0;
  });
  ASSERT_FALSE(Fetch());
  EXPECT_EQ(UnfinishedDownload(to()),
            Cat(to(), ": an unfinished download: 6 of 7 files: go on with `deltafin setup --repo ", HubServer::kRepo,
                " --to ", to(), "`"));
  server_.Disturb({});
  ASSERT_TRUE(Fetch());
  EXPECT_EQ(UnfinishedDownload(to()), "");
}

TEST_F(SetupTest, KeepsWhatIsThereAndRefusesWhatDiffers) {
  fs::create_directories(to());
  WriteFileBytes(to() + "/model-1.safetensors", server_.files().at("model-1.safetensors"));
  WriteFileBytes(to() + "/mine.txt", "not the repository's");
  const auto report = Fetch();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->files_there, 1u);
  EXPECT_EQ(ReadFileBytes(to() + "/mine.txt"), "not the repository's");
  fs::remove(to() + "/" + kSetupJournalName);
  FlipByte(to() + "/model-3.safetensors", 77);
  const auto refused = Fetch();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("model-3.safetensors"), std::string::npos);
  fs::remove(to() + "/model-3.safetensors");
  fs::remove(to() + "/mine.txt");
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, FilesWithNamesOfOurOwnAreLeftOut) {
  std::map<std::string, std::string> files = SmallRepository();
  for (const char* name : {"deltafin-experts.json", "DELTAFIN-setup.journal", "folder/Deltafin-files.txt", ".hidden"})
    files[name] = "{}";
  HubServer server(files);
  HubAccess access(server, 5);
  const auto report = FetchModel(*access.source, OptionsFor(to()), {}, {});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->files.size(), 7u);
  ExpectWhole();
}

TEST_F(SetupTest, AFileThatWasTouchedIsCheckedAgain) {
  ASSERT_TRUE(Fetch());
  FlipByte(to() + "/model-1.safetensors", 5);
  const auto refused = Fetch();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("model-1.safetensors"), std::string::npos);
}

TEST_F(SetupTest, APartialFileThatVanishedIsFetchedAgain) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.file == "model-3.safetensors" && r.to_content_port) a.cut_at = 0;
  });
  ASSERT_FALSE(Fetch());
  for (const auto& entry : fs::directory_iterator(to()))
    if (entry.path().extension() == ".part") fs::remove(entry.path());
  server_.Disturb({});
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, AFolderWithAnotherDownloadIsRefused) {
  ASSERT_TRUE(Fetch());
  HubOptions hub;
  hub.revision = "other";
  const auto refused = Fetch(OptionsFor(to()), hub);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SetupTest, AFullDriveIsAnErrorOfResourcesAndTheNextCallGoesOn) {
  SetupOptions options = OptionsFor(to());
  std::atomic<int> writes{0};
  options.hook = [&](DiskStep step, const std::string& path) -> Status {
    if (step == DiskStep::kWrite && path.ends_with(".part") && ++writes > 6)
      return Fail(ErrorCode::kUnavailable, path, ": no space left");
    return {};
  };
  ExpectRefused(Fetch(options), ErrorCode::kUnavailable, "no space left");
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

// The journal says that it was verified once, and a partial file has its full size from the beginning.
TEST_F(SetupTest, AFileThatWasTakenAwayIsFetchedWholeAlsoWhenThatIsInterrupted) {
  ASSERT_TRUE(Fetch());
  for (int round = 0; round < 2; ++round) {
    fs::remove(to() + "/model-1.safetensors");
    SetupOptions options = OptionsFor(to());
    std::atomic<int> writes{0};
    options.hook = [&](DiskStep step, const std::string& path) -> Status {
      if (step == DiskStep::kWrite && path.ends_with("model-1.safetensors.part") && ++writes > round * 5)
        return Fail(ErrorCode::kIo, path, ": unplugged");
      return {};
    };
    ExpectRefused(Fetch(options), ErrorCode::kIo, "unplugged");
    EXPECT_EQ(fs::file_size(to() + "/model-1.safetensors.part"), 300'000u);
    const auto report = Fetch();
    ASSERT_TRUE(report) << report.error().message();
    ExpectWhole();
    EXPECT_EQ(report->files_fetched, 1u);
  }
}

TEST_F(SetupTest, APartialFileOfTheRightSizeIsNotTakenForTheVerifiedOne) {
  ASSERT_TRUE(Fetch());
  fs::remove(to() + "/model-1.safetensors");
  WriteFileBytes(to() + "/model-1.safetensors.part", std::string(300'000, '\0'));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, ACopyInsideItsSourceIsRefused) {
  const std::string from = folder_.path() + "/from";
  fs::create_directories(from + "/a");
  WriteFileBytes(from + "/config.json", "{}");
  const auto source = MakeFolderSource(from);
  for (const std::string& target : {from, from + "/a", from + "/a/new", folder_.path()})
    ExpectRefused(FetchModel(**source, OptionsFor(target), {}, {}), ErrorCode::kInvalidArgument, "is not in");
}

TEST_F(SetupTest, ATargetThatIsALinkToNowhereIsRefused) {
  fs::create_symlink("nowhere", to());
  ExpectRefused(Fetch(), ErrorCode::kInvalidArgument, "leads nowhere");
}

TEST_F(SetupTest, ALinkThatLeadsNowhereIsNamed) {
  const std::string from = folder_.path() + "/from";
  fs::create_directories(from);
  WriteFileBytes(from + "/config.json", "{}");
  fs::create_symlink("loop", from + "/loop");
  const auto source = MakeFolderSource(from);
  ExpectRefused(FetchModel(**source, OptionsFor(to()), {}, {}), ErrorCode::kIo, from + "/loop");
}

TEST_F(SetupTest, CopiesAFolder) {
  const std::string from = folder_.path() + "/from";
  for (const auto& [name, contents] : server_.files()) {
    fs::create_directories(fs::path(from + "/" + name).parent_path());
    WriteFileBytes(from + "/" + name, contents);
  }
  const auto source = MakeFolderSource(from);
  ASSERT_TRUE(source);
  const auto report = FetchModel(**source, OptionsFor(to()), {}, {});
  ASSERT_TRUE(report) << report.error().message();
  ExpectWhole();
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_TRUE(report->of_folder);
  const auto list = KnownModelFiles(to());
  ASSERT_TRUE(list && *list);
  EXPECT_EQ((*list)->files.size(), 7u);
  for (const ModelFile& file : (*list)->files) EXPECT_TRUE(CheckModelFile(to() + "/" + file.name, file, {}, {}));
  // What it knows it does not read again; without its list it does.
  EXPECT_EQ(FetchModel(**source, OptionsFor(to()), {}, {})->files_unread, 7u);
  fs::remove(to() + "/" + kModelFilesName);
  EXPECT_EQ(FetchModel(**source, OptionsFor(to()), {}, {})->files_unread, 0u);
  EXPECT_EQ((*KnownModelFiles(to()))->files.size(), 7u);
}

// The layout of the hub's cache: names are links to blobs, which are named by their checksums.
class HubCacheTest : public SetupTest {
 protected:
  void SetUp() override {
    const fs::path repo = fs::path(folder_.path()) / "models--someone--model";
    fs::create_directories(repo / "refs");
    fs::create_directories(repo / "blobs");
    WriteFileBytes((repo / "refs/main").string(), HubServer::kCommit);
    for (const auto& [name, contents] : SmallRepository()) {
      const fs::path blob = repo / "blobs" / ChecksumOf(name, contents),
                     link = repo / "snapshots" / HubServer::kCommit / name;
      WriteFileBytes(blob.string(), contents);
      fs::create_directories(link.parent_path());
      fs::create_symlink(fs::relative(blob, link.parent_path()), link);
      blobs_[name] = blob.string();
    }
  }
  std::map<std::string, std::string> blobs_;
};

TEST_F(HubCacheTest, FindsASnapshotAndVerifiesIt) {
  const auto snapshot = FindHubSnapshot(folder_.path(), HubServer::kRepo, "main");
  ASSERT_TRUE(snapshot) << snapshot.error().message();
  EXPECT_EQ(snapshot->commit, HubServer::kCommit);
  const auto check = CheckHubSnapshot(*snapshot, {}, {});
  ASSERT_TRUE(check);
  EXPECT_EQ(check->files, 7u);
  EXPECT_TRUE(check->faults.empty() && check->unchecked.empty());
}

TEST_F(HubCacheTest, NamesDamagedAndMissingFiles) {
  FlipByte(blobs_.at("model-1.safetensors"), 3);
  fs::remove(blobs_.at("README.md"));
  const auto check = CheckHubSnapshot(*FindHubSnapshot(folder_.path(), HubServer::kRepo, "main"), {}, {});
  ASSERT_TRUE(check);
  ASSERT_EQ(check->faults.size(), 2u);
  EXPECT_NE(check->faults[0].find("README.md"), std::string::npos);
  EXPECT_NE(check->faults[1].find("model-1.safetensors"), std::string::npos);
}

TEST_F(HubCacheTest, SaysWhatIsMissing) {
  EXPECT_EQ(FindHubSnapshot(folder_.path(), "someone/else", "main").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(FindHubSnapshot(folder_.path(), HubServer::kRepo, "dev").error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(FindHubSnapshot(folder_.path(), "../someone/model", "main"));
}

}  // namespace
}  // namespace deltafin::test
