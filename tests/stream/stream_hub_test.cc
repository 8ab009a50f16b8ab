// What `setup --dense-only` and runs take from a hub, from which one, and what they say of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/read_twice.h"
#include "stream/made_stream.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using test::HubFaults;
using test::HubServer;
using testing::HasSubstr;
using testing::Not;

// The first letter of what it brings is another one in `wrong` of the reads, in turn.
class Wavering final : public RemoteFiles {
 public:
  explicit Wavering(std::vector<bool> wrong) : wrong_(std::move(wrong)) {}
  Status Read(const StreamFile&, uint64_t, MutBytes out, CancelToken) override {
    std::fill(out.begin(), out.end(), std::byte{7});
    const size_t read = reads_++;
    if (read < wrong_.size() && wrong_[read]) out[0] = static_cast<std::byte>(100 + read);
    return {};
  }

 private:
  const std::vector<bool> wrong_;
  size_t reads_ = 0;
};

TEST(ReadTwice, TakesWhatCameTwiceAndGivesUpWhenNothingDoes) {
  const auto read = [](std::vector<bool> wrong) -> Status {
    ReadTwice files(std::make_unique<Wavering>(std::move(wrong)));
    std::byte bytes[10] = {};
    DFIN_TRY_VOID(files.Read({"a.safetensors", 10, "", ""}, 0, bytes, {}));
    return bytes[0] == std::byte{7} ? Status() : Status(Fail(ErrorCode::kInternal, "wrong bytes"));
  };
  EXPECT_TRUE(read({}));
  EXPECT_TRUE(read({true}));
  EXPECT_TRUE(read({false, true}));
  EXPECT_TRUE(read({true, true, true, true}));
  const Status never = read(std::vector<bool>(100, true));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(never.error().message(), HasSubstr("a.safetensors, bytes 0 to 9"));
}

TEST(ReadTwice, IsTheRuleWhereTheConnectionDoesNotProtectWhatCrossesIt) {
  const auto twice = [](const std::string& endpoint, const std::string& mirror, CheckTwice wanted) {
    HubAccess access;
    access.hub.endpoint = endpoint;
    access.hub.mirror = mirror;
    access.check_twice = wanted;
    return ReadsTwice(access);
  };
  EXPECT_FALSE(twice("https://a", "", CheckTwice::kAuto));
  EXPECT_TRUE(twice("http://a", "", CheckTwice::kAuto));
  EXPECT_TRUE(twice("https://a", "http://b", CheckTwice::kAuto));
  EXPECT_TRUE(twice("https://a", "", CheckTwice::kOn));
  EXPECT_FALSE(twice("http://a", "", CheckTwice::kOff));
}

// A repository of its own, with more in it than the model.
class StreamHub : public testing::Test {
 protected:
  StreamHub() { fs::copy(test::NanoModel(), repository_.path(), fs::copy_options::recursive); }
  void Add(const std::string& name, const std::string& text) {
    std::ofstream(repository_.path() + "/" + name, std::ios::binary) << text;
  }
  const std::string& to() const { return folder_.path(); }
  std::string To(const std::string& name) const { return to() + "/" + name; }
  // The command itself, not only what it calls.
  test::ProcessResult Command(const HubServer& server, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"setup", "--repo", HubServer::kRepo, "--to", to()};
    if (std::find(more.begin(), more.end(), "--endpoint") == more.end())
      arguments.insert(arguments.end(), {"--endpoint", server.endpoint()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::Deltafin(arguments);
  }
  std::string TokenFile() const {
    std::ofstream(repository_.path() + ".token") << "secret\n";
    return repository_.path() + ".token";
  }

  const test::TempFolder repository_, folder_;
};

TEST_F(StreamHub, NothingOfTheRepositoryGetsANameOfDeltafinsOwn) {
  const std::vector<std::string> own = {"deltafin-experts.json",
                                        "DELTAFIN-setup.journal",
                                        "deltafin-dense.json",
                                        "deltafin-stream.json",
                                        ".hidden",
                                        "partial"};
  for (const std::string& name : own) Add(name, "{}");
  Add("README.md", "read me");
  const HubServer server(repository_.path());
  const Result<int> done = RunStreamSetup(test::SetupOf(server, to()));
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_TRUE(fs::exists(To("README.md")));
  EXPECT_TRUE(fs::is_directory(To("partial")));
  EXPECT_EQ(ReadStreamManifest(to())->repository, HubServer::kRepo);
  for (const std::string& name : own)
    EXPECT_TRUE(name == "partial" || name == kStreamManifestName || !fs::exists(To(name))) << name;
}

TEST_F(StreamHub, ALargeFileBesideTheShardsComesWholeAndGoesOnAfterFailures) {
  std::string text;
  for (uint32_t i = 0; i < 3'000'000; ++i) text += static_cast<char>(i * 2654435761u >> 24), text += "abc";
  Add("report.pdf", text);
  HubServer server(repository_.path());
  const HubFaults faults{.drop = 10, .truncate = 10, .error = 5, .busy = 5, .flip = 10, .stall = 0};
  server.SetFaults(faults);
  const Result<int> done = RunStreamSetup(test::SetupOf(server, to()));
  ASSERT_TRUE(done) << done.error().message();
  test::ExpectEveryKindHappened(faults, server.happened());
  EXPECT_TRUE(ReadWholeFile(To("report.pdf"), uint64_t{1} << 30).value() == text);
}

TEST_F(StreamHub, AServerThatIgnoresRangesIsNamedWithWhatElseWorks) {
  HubServer server(repository_.path());
  server.IgnoreRanges();
  const auto r = Command(server, {"--dense-only"});
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_THAT(r.err, HasSubstr("`deltafin setup` without --dense-only"));
}

TEST_F(StreamHub, AnotherEndpointIsUsedAndKeptOnceItHasTheSameFiles) {
  const HubServer first(repository_.path());
  HubServer second(repository_.path());
  test::MakeStream(first, to());
  const int requests = first.requests();
  const Result<int> done = RunStreamSetup([&] {
    StreamSetupOptions options = test::SetupOf(second, to());
    options.access.endpoint_given = true;
    return options;
  }());
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(ReadStreamManifest(to())->endpoint, second.endpoint());
  ASSERT_EQ(Command(second, {}).exit_code, 0);
  EXPECT_EQ(first.requests(), requests);
  test::ExpectComplete(to());
}

TEST_F(StreamHub, AnEndpointThatIsNotThereOrHasOtherFilesChangesNothing) {
  const HubServer first(repository_.path());
  test::MakeStream(first, to());
  const test::TempFolder changed;
  fs::copy(repository_.path(), changed.path(), fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(changed.path()))
    if (entry.path().extension() == ".safetensors") std::ofstream(entry.path(), std::ios::app) << "more";
  const HubServer other(changed.path());
  for (const std::string& endpoint : {std::string("http://127.0.0.1:1"), other.endpoint()}) {
    StreamSetupOptions options = test::SetupOf(other, to(), false);
    options.access.hub.endpoint = endpoint;
    options.access.hub.retry.attempts = 2;
    options.access.endpoint_given = true;
    const Result<int> done = RunStreamSetup(options);
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message(), HasSubstr(endpoint));
    EXPECT_EQ(ReadStreamManifest(to())->endpoint, first.endpoint());
  }
}

TEST_F(StreamHub, ATokenGoesOnlyWhereTheUserSaidOrToTheUsualHub) {
  HubServer server(repository_.path());
  test::MakeStream(server, to());
  const std::string token = TokenFile();
  const auto setup = test::Deltafin({"setup", "--repo", HubServer::kRepo, "--to", to(), "--token-file", token});
  EXPECT_EQ(setup.exit_code, 2) << setup.err;
  EXPECT_THAT(setup.err, HasSubstr(server.endpoint()));
  const test::GreedyCase greedy = test::ExpectedGreedy(0);
  const auto run = test::RunGreedy(to(), greedy, {"--token-file", token});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("--endpoint " + server.endpoint()));
  EXPECT_FALSE(server.saw_token());
  const auto named = test::RunGreedy(to(), greedy, {"--token-file", token, "--endpoint", server.endpoint()});
  EXPECT_EQ(named.out, greedy.new_ids) << named.err;
  EXPECT_TRUE(server.saw_token());
}

TEST_F(StreamHub, ADryRunListsFilesAndRoomAndWritesNothing) {
  const HubServer server(repository_.path());
  uint64_t needed[2] = {};
  for (const bool dense_only : {false, true}) {
    if (!dense_only) test::MakeStream(server, to());
    std::vector<std::string> arguments = {"--dry-run", "--json"};
    if (dense_only) arguments.push_back("--dense-only");
    const auto r = Command(server, arguments);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    Json plan;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) plan = Json::parse(line);
    EXPECT_EQ(plan["event"], "plan");
    EXPECT_GT(plan["files"].size(), 10u);
    needed[dense_only ? 1 : 0] = plan["space"][0]["needed"].get<uint64_t>();
  }
  EXPECT_GT(needed[0], 0u) << "experts are to come";
  EXPECT_LT(needed[1], needed[0]) << "all else is there";
  const test::TempFolder fresh;
  const auto r = test::Deltafin({"setup", "--repo", HubServer::kRepo, "--endpoint", server.endpoint(), "--to",
                                 fresh.path() + "/new", "--dense-only", "--dry-run"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("config.json"));
  EXPECT_THAT(r.err, HasSubstr("nothing was written"));
  EXPECT_FALSE(fs::exists(fresh.path() + "/new"));
}

TEST_F(StreamHub, TheFirstLineComesAtOnceAndTheLastSaysWhatWasNotCompared) {
  HubServer server(repository_.path());
  server.SetDelay(50);
  const auto r = Command(server, {"--dense-only", "--check-twice"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(r.err.starts_with("reading the file list")) << r.err;
  EXPECT_THAT(r.err, Not(HasSubstr("0.0 s left")));
  EXPECT_THAT(r.err, HasSubstr("fetched twice and compared"));
  EXPECT_THAT(r.err, HasSubstr("checksums of whole shards only"));
  EXPECT_EQ(Command(server, {"--dense-only", "--check-twice", "perhaps"}).exit_code, 2);
  const test::TempFolder plain;
  EXPECT_EQ(test::Deltafin({"setup", "--repo", HubServer::kRepo, "--to", plain.path(), "--check-twice"}).exit_code, 2);
}

TEST_F(StreamHub, EventsAreThoseOfEverySetup) {
  HubServer server(repository_.path());
  server.SetDelay(20);
  server.SetFaults({.drop = 0, .truncate = 0, .error = 2, .busy = 0, .flip = 0, .stall = 0});
  const auto r = Command(server, {"--dense-only", "--json", "--check-twice", "off"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::map<std::string, Json> last;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    last[event["event"].get<std::string>()] = event;
  }
  for (const char* key : {"phase", "files_done", "files_total", "bytes_done", "bytes_total", "bytes_received",
                          "bytes_per_second", "seconds_left", "retries"})
    EXPECT_TRUE(last["progress"].contains(key)) << key;
  EXPECT_TRUE(last["note"].contains("text"));
  for (const char* key : {"source", "commit", "folder", "files", "files_fetched", "files_there", "bytes_total",
                          "bytes_received", "seconds", "retries"})
    EXPECT_TRUE(last["done"].contains(key)) << key;
  EXPECT_EQ(last["done"]["complete"], false);
  EXPECT_EQ(last["done"]["parts_checked"], "not compared with anything");
}

}  // namespace
}  // namespace deltafin
