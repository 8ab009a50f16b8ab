// A whole download from a hub on this machine, well and badly behaved: it ends byte-equal or with a clear error, and a
// partial file never has a final name.
#include "setup/setup.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "pack/pack_case.h"
#include "base/digest.h"
#include "setup/hub_cache.h"
#include "setup/setup_case.h"
#include "setup/setup_journal.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

using Disturb = std::function<void(const HubRequest&, HubAnswer&)>;

class SetupTest : public testing::Test {
 protected:
  Result<SetupReport> Fetch(SetupOptions options, HubOptions hub = {}) {
    HubAccess access(server_, stall_seconds_, std::move(hub));
    options.on_note = [&](const std::string& note) { notes_ += note + "\n"; };
    Result<SetupReport> report = FetchModel(*access.source, options, {}, {});
    waits_ = access.waiter.waits();
    return report;
  }
  Result<SetupReport> Fetch() { return Fetch(OptionsFor(to())); }
  std::string to() const { return folder_.path() + "/model"; }
  void ExpectWhole() { EXPECT_EQ(FirstDifference(server_.files(), FilesIn(to())), ""); }
  // Fails with `code`, whose message has `words`; nothing wrong has a final name.
  void ExpectRefused(const Result<SetupReport>& report, ErrorCode code, const std::string& words) {
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), code) << report.error().message();
    EXPECT_NE(report.error().message().find(words), std::string::npos) << report.error().message();
    if (fs::exists(to())) {
      EXPECT_EQ(WrongFile(server_.files(), FilesIn(to())), "");
    }
  }
  // Changes the first `times` answers with contents of large files.
  Disturb FirstContents(int times, std::function<void(HubAnswer&)> change) {
    return [left = std::make_shared<int>(times), change](const HubRequest& r, HubAnswer& a) {
      if (r.to_content_port && a.body.size() > 1000 && (*left)-- > 0) change(a);
    };
  }

  HubServer server_{SmallRepository()};
  TempFolder folder_;
  std::string notes_;
  std::vector<double> waits_;
  double stall_seconds_ = 5;
};

TEST_F(SetupTest, FetchesEveryFileInRangesAndTheSmallOnesFirst) {
  const auto report = Fetch();
  ASSERT_TRUE(report) << report.error().message();
  ExpectWhole();
  EXPECT_EQ(report->commit, HubServer::kCommit);
  EXPECT_EQ(report->files_fetched, 7u);
  size_t first_large = SIZE_MAX, last_small = 0;
  for (const HubRequest& r : server_.requests()) {
    if (r.to_content_port) first_large = std::min(first_large, r.number);
    if (r.to_content_port) {
      EXPECT_NE(r.range, "");
    }
    if (!r.file.empty() && !r.file.ends_with(".safetensors")) last_small = std::max(last_small, r.number);
  }
  EXPECT_LT(last_small, first_large);
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

TEST_F(SetupTest, ADryRunWritesNothing) {
  SetupOptions options = OptionsFor(to());
  options.dry_run = true;
  const auto report = Fetch(options);
  ASSERT_TRUE(report);
  EXPECT_FALSE(fs::exists(to()));
  EXPECT_EQ(report->files.size(), 7u);
  ASSERT_EQ(report->space.size(), 1u);
  EXPECT_GE(report->space[0].needed, 564'000u);
}

TEST_F(SetupTest, EndsByteEqualWhenConnectionsAreCut) {
  server_.Disturb(FirstContents(6, [](HubAnswer& a) { a.cut_at = a.body.size() / 2; }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_FALSE(waits_.empty());
}

TEST_F(SetupTest, EndsByteEqualWhenBodiesAreShort) {
  server_.Disturb(FirstContents(4, [](HubAnswer& a) { a.body.resize(a.body.size() - 7); }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenConnectionsStall) {
  stall_seconds_ = 0.5;
  server_.Disturb(FirstContents(3, [](HubAnswer& a) { a.stall_at = 10; }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenTheServerIsBusy) {
  for (const int status : {429, 500, 503}) {
    fs::remove_all(to());
    server_.Disturb([status, left = std::make_shared<int>(4)](const HubRequest&, HubAnswer& a) {
      if ((*left)-- <= 0) return;
      a = HubAnswer{};
      a.status = status;
      a.headers["Retry-After"] = "3";
    });
    ASSERT_TRUE(Fetch()) << status;
    ExpectWhole();
    EXPECT_GE(waits_.at(0), 3.0);
  }
}

TEST_F(SetupTest, EndsByteEqualWhenTheServerIgnoresRanges) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (!r.to_content_port) return;
    a.status = 200;
    a.headers.erase("Content-Range");
    a.body = server_.files().at(r.file);
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenBitsFlipOnTheWay) {
  server_.Disturb(FirstContents(1, [](HubAnswer& a) { a.body[500] = static_cast<char>(a.body[500] ^ 4); }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_NE(notes_.find("fetched again"), std::string::npos) << notes_;
}

TEST_F(SetupTest, BitsThatFlipAlwaysAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.file == "model-2.safetensors" && r.to_content_port) a.body[5] = static_cast<char>(a.body[5] ^ 4);
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "sha256");
  EXPECT_FALSE(fs::exists(to() + "/model-2.safetensors"));
}

TEST_F(SetupTest, AServerThatStaysBusyIsAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.to_content_port) a = HubAnswer{.status = 503, .headers = {}, .body = "", .cut_at = {}, .stall_at = {}};
  });
  ExpectRefused(Fetch(), ErrorCode::kIo, "503");
  server_.Disturb({});
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, WrongContentRangesAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.to_content_port) a.headers["Content-Range"] = "bytes 1-65536/300000";
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected bytes");
}

TEST_F(SetupTest, WrongSizesInTheListAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (!r.target.starts_with("/api/")) return;
    for (size_t at = 0; (at = a.body.find(":300000,", at)) != std::string::npos; ++at)
      a.body.replace(at, 8, ":300007,");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected size 300007");
}

TEST_F(SetupTest, ARevisionThatMovesHalfWayChangesNothing) {
  const std::string later(40, 'f');
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.number > 8 && r.to_content_port) a.cut_at = 0;
  });
  ASSERT_FALSE(Fetch());
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.target.ends_with("/revision/main")) a.body = Cat(R"({"sha":")", later, R"("})");
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_NE(notes_.find(later), std::string::npos) << notes_;
}

TEST_F(SetupTest, ContentsOfAnotherCommitAreRefused) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (a.headers.contains("X-Repo-Commit") && r.file == "model-3.safetensors")
      a.headers["X-Repo-Commit"] = std::string(40, 'f');
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected commit");
}

TEST_F(SetupTest, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name : {"../../evil", "/tmp/evil", "a/../b", "x\\u0000y"}) {
    server_.Disturb([name](const HubRequest& r, HubAnswer& a) {
      const size_t at = a.body.find("README.md");
      if (r.target.starts_with("/api/") && at != std::string::npos) a.body.replace(at, 9, name);
    });
    ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected names of files inside the repository");
    EXPECT_FALSE(fs::exists(to()));
  }
}

TEST_F(SetupTest, ListsThatAreNoneAreRefused) {
  for (const char* body : {"", "{", "[[[", "<html>", "[{\"type\":\"file\"}]"}) {
    server_.Disturb([body](const HubRequest& r, HubAnswer& a) {
      if (r.target.find("/tree/") != std::string::npos) a.body = body;
    });
    ASSERT_FALSE(Fetch()) << body;
  }
}

TEST_F(SetupTest, PagesInACircleAreRefused) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos) a.headers["Link"] = Cat("<", r.target, R"(>; rel="next")");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "circle");
}

TEST_F(SetupTest, PagesOfAnotherServerAreRefused) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos)
      a.headers["Link"] = Cat("<", server_.content_url(), R"(/x>; rel="next")");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "same server");
}

TEST_F(SetupTest, AListWithoutEndIsRefused) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos) a.body = std::string(size_t{33} << 20, ' ');
  });
  ExpectRefused(Fetch(), ErrorCode::kUnsupported, "at most");
}

TEST_F(SetupTest, ATokenIsAskedForAndGoesToTheHubOnly) {
  server_.RequireToken("secret");
  ExpectRefused(Fetch(), ErrorCode::kInvalidArgument, "--token-file");
  HubOptions hub;
  hub.token = "secret";
  ASSERT_TRUE(Fetch(OptionsFor(to()), hub));
  ExpectWhole();
  for (const HubRequest& r : server_.requests())
    if (r.to_content_port) {
      EXPECT_EQ(r.authorization, "");
    }
}

TEST_F(SetupTest, AMirrorBringsTheContentsAndTheHubsChecksumsDecide) {
  HubServer mirror(SmallRepository());
  HubOptions hub;
  hub.mirror = mirror.url();
  hub.token = "secret";
  ASSERT_TRUE(Fetch(OptionsFor(to()), hub));
  ExpectWhole();
  for (const HubRequest& r : server_.requests()) EXPECT_EQ(r.file, "");
  for (const HubRequest& r : mirror.requests()) EXPECT_EQ(r.authorization, "");
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

TEST_F(SetupTest, AnotherKindOfModelIsRefusedBeforeAnythingIsWritten) {
  SetupOptions options = OptionsFor(to());
  options.any_model = false;
  const auto refused = Fetch(options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("--any-model"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(fs::exists(to()));
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

TEST_F(SetupTest, StopsWhenAskedToAndGoesOn) {
  CancelSource cancel;
  HubAccess access(server_);
  SetupOptions options = OptionsFor(to());
  std::atomic<int> writes{0};
  options.hook = [&](DiskStep step, const std::string&) -> Status {
    if (step == DiskStep::kWrite && ++writes == 10) cancel.Cancel();
    return {};
  };
  ExpectRefused(FetchModel(*access.source, options, {}, cancel.token()), ErrorCode::kCancelled, "stopped");
  ASSERT_TRUE(Fetch());
  ExpectWhole();
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
      const bool large = name.ends_with(".safetensors");
      Digest digest = large ? *Digest::Sha256() : *Digest::GitSha1(contents.size());
      ASSERT_TRUE(digest.Add(std::as_bytes(std::span(contents))));
      const fs::path blob = repo / "blobs" / *digest.Finish(), link = repo / "snapshots" / HubServer::kCommit / name;
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
