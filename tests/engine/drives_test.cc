// The promise of the engine with experts on several drives: any number, cut, copies, compact scales, chunk sizes, a
// slow drive and every fault that a copy can mend give the same bytes as the shards; what cannot be mended is an error
// that names everything, after which the engine goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "base/platform.h"
#include "support/engine_runs.h"
#include "support/expert_set_builder.h"
#include "support/fake_io_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

constexpr int64_t kTokens = 24;

std::vector<TokenId> RandomTokens(int64_t vocab, uint32_t seed = 20261130) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(kTokens);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

struct Drives {
  std::string name;
  std::vector<double> rates;
  bool compact = false;
  double replicas = 0;
  uint64_t chunk_bytes = 0;
  bool verify = false;
  std::string io = "auto";
  std::vector<int64_t> pieces = {1};
  // Of the fake engine; `folder` is the set's first drive.
  std::function<test::FakeFault(const ReadRequest&, const std::string& folder, std::mt19937_64& random)> fault = {};
  bool random_io = false;
};

bool IsOn(const ReadRequest& request, const std::string& folder) { return request.file->path().starts_with(folder); }

std::vector<Drives> Variations() {
  std::vector<Drives> v;
  const std::vector<std::vector<double>> counts = {{1}, {1, 1}, {13.6, 7.1, 5.4}, {13.6, 7.1, 7.1, 5.4, 1}};
  for (const std::vector<double>& rates : counts) {
    const std::string n = std::to_string(rates.size());
    v.push_back({.name = "Striped" + n, .rates = rates});
    v.push_back({.name = "Compact" + n, .rates = rates, .compact = true});
    v.push_back({.name = "StripedRandomCompletions" + n, .rates = rates, .pieces = {5}, .random_io = true});
    if (rates.size() < 2) continue;
    v.push_back({.name = "Mirrored" + n, .rates = rates, .replicas = 1, .pieces = {3}});
    v.push_back(
        {.name = "HalfMirroredCompact" + n, .rates = rates, .compact = true, .replicas = 0.5, .random_io = true});
  }
  for (const uint64_t chunk : {4096, 8192, 20480, 1 << 20})
    v.push_back({.name = "Chunks" + std::to_string(chunk), .rates = {3, 2, 1}, .replicas = 1, .chunk_bytes = chunk});
  v.push_back({.name = "Pread", .rates = {2, 1}, .io = "pread"});
  v.push_back({.name = "Verified", .rates = {3, 2, 1}, .compact = true, .verify = true});
  v.push_back({.name = "OneDriveTenTimesSlower",
               .rates = {1, 1, 1},
               .replicas = 1,
               .fault = [](const ReadRequest& request, const std::string& folder, std::mt19937_64&) {
                 return test::FakeFault{.delay_us = IsOn(request, folder) ? 2000 : 200};
               }});
  v.push_back({.name = "RandomFailuresMendedByCopies",
               .rates = {2, 1, 1},
               .compact = true,
               .replicas = 1,
               .fault = [](const ReadRequest& request, const std::string& folder, std::mt19937_64& random) {
                 test::FakeFault fault;
                 if (IsOn(request, folder) && random() % 4 == 0)
                   fault.status = Fail(ErrorCode::kIo, request.file->path(), ": made to fail");
                 return fault;
               }});
  v.push_back({.name = "ADriveThatAlwaysFails",
               .rates = {2, 1, 1},
               .replicas = 1,
               .fault = [](const ReadRequest& request, const std::string& folder, std::mt19937_64&) {
                 test::FakeFault fault;
                 if (IsOn(request, folder)) fault.status = Fail(ErrorCode::kIo, request.file->path(), ": gone");
                 return fault;
               }});
  v.push_back({.name = "RandomFlippedBits",
               .rates = {2, 1, 1},
               .compact = true,
               .replicas = 1,
               .verify = true,
               .fault = [](const ReadRequest& request, const std::string& folder, std::mt19937_64& random) {
                 test::FakeFault fault;
                 if (IsOn(request, folder) && random() % 5 == 0)
                   fault.flipped_byte = static_cast<int64_t>(random() % request.bytes);
                 return fault;
               }});
  return v;
}

struct Place {
  std::string model, device, isa;
};

std::vector<Place> Places() {
  // Arithmetic is the business of the other invariance test; sanitizers look at the reading.
  if (kIsSanitized) return {{"micro", "cpu", "auto"}};
  std::vector<Place> places = {{"micro", "reference", "auto"}};
  for (const std::string& isa : test::UsableIsas()) places.push_back({"micro", "cpu", isa});
  places.push_back({"nano", "cpu", "auto"});
  return places;
}

std::string ModelFolder(const Place& place) {
  return place.model == "micro" ? test::MicroFolder() : test::NanoFolder();
}

EngineOptions OptionsFor(const Place& place) {
  EngineOptions options;
  options.model = ModelFolder(place);
  options.device = place.device;
  options.isa = place.isa;
  return options;
}

// The smallest cache that will do, so that every step reads.
Status UseSmallestCache(EngineOptions& options, const test::OpenedEngine::IoFactory& io) {
  test::OpenedEngine probe(options, io);
  if (!probe.ok()) return Failure(probe.error());
  const uint64_t slot = probe->plan().rows[3].bytes / static_cast<uint64_t>(probe->plan().expert_slots);
  options.expert_cache = slot * static_cast<uint64_t>(probe->spec().num_experts_per_token) * 2;
  return {};
}

class DrivesInvariance : public testing::TestWithParam<std::tuple<Place, Drives>> {};

TEST_P(DrivesInvariance, LogitsAreThoseOfTheShards) {
  const auto& [place, drives] = GetParam();
  static std::map<std::string, std::vector<float>> plain_runs;
  const std::string key = place.model + place.device + place.isa;
  if (!plain_runs.contains(key)) {
    test::OpenedEngine engine(OptionsFor(place));
    ASSERT_TRUE(engine.ok());
    Result<Session> session = engine->NewSession();
    auto logits = test::AllLogits(*engine, *session, RandomTokens(engine->spec().vocab_size), {kTokens});
    ASSERT_TRUE(logits) << logits.error().message();
    plain_runs[key] = std::move(*logits);
  }
  const std::vector<float>& plain = plain_runs[key];

  const test::TempFolder folder;
  const auto folders = test::DriveFolders(folder.path(), static_cast<int>(drives.rates.size()));
  test::BuildExpertSet(ModelFolder(place), folders,
                       {.rates = drives.rates, .compact = drives.compact, .replicas = drives.replicas});
  EngineOptions options = OptionsFor(place);
  options.experts = folders;
  options.verify_reads = drives.verify;
  options.io = drives.io;
  ASSERT_TRUE(UseSmallestCache(options, {}));
  test::OpenedEngine::IoFactory io;
  if (drives.random_io || drives.fault) {
    io = [&]() -> Result<std::unique_ptr<IoEngine>> {
      auto fake = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 5, .max_delay_us = 100});
      if (drives.fault)
        fake->SetFaults([&, random = std::mt19937_64(7)](const ReadRequest& request) mutable {
          return drives.fault(request, folders[0], random);
        });
      return fake;
    };
  }
  test::OpenedEngine engine(options, io, [&](IoSchedulerOptions& o) { o.chunk_bytes = drives.chunk_bytes; });
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  Result<Session> session = engine->NewSession();
  const auto logits = test::AllLogits(*engine, *session, RandomTokens(engine->spec().vocab_size), drives.pieces);
  ASSERT_TRUE(logits) << logits.error().message();
  ASSERT_EQ(logits->size(), plain.size());
  EXPECT_EQ(std::memcmp(logits->data(), plain.data(), plain.size() * sizeof(float)), 0);
  EXPECT_GT(engine->counters().expert_bytes_demand, 0u);
  if (drives.verify) {
    EXPECT_GT(engine->counters().reads_verified, 0u);
    EXPECT_EQ(engine->counters().reads_mismatched > 0, static_cast<bool>(drives.fault));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DrivesInvariance,
                         testing::Combine(testing::ValuesIn(Places()), testing::ValuesIn(Variations())),
                         [](const testing::TestParamInfo<std::tuple<Place, Drives>>& info) {
                           const Place& p = std::get<0>(info.param);
                           return p.model + "_" + p.device + "_" + p.isa + "_" + std::get<1>(info.param).name;
                         });

// An engine over a set whose first drive misbehaves while `mode` says so.
enum class Mode : int { kFine, kFails, kHangs, kFlips };

struct Misbehaving {
  test::TempFolder folder;
  std::vector<std::string> folders;
  std::shared_ptr<std::atomic<Mode>> mode = std::make_shared<std::atomic<Mode>>(Mode::kFine);
  test::FakeIoEngine* io = nullptr;
  std::unique_ptr<test::OpenedEngine> engine;
  std::vector<TokenId> tokens;
  std::vector<float> expected;

  Misbehaving(int drives, double replicas, bool verify = false) {
    const Place place{"micro", "cpu", "auto"};
    {
      test::OpenedEngine plain(OptionsFor(place));
      tokens = RandomTokens(plain->spec().vocab_size);
      Result<Session> session = plain->NewSession();
      expected = *test::AllLogits(*plain, *session, tokens, {kTokens});
    }
    folders = test::DriveFolders(folder.path(), drives);
    test::BuildExpertSet(test::MicroFolder(), folders, {.replicas = replicas});
    EngineOptions options = OptionsFor(place);
    options.experts = folders;
    options.verify_reads = verify;
    EXPECT_TRUE(UseSmallestCache(options, {}));
    const auto factory = [this]() -> Result<std::unique_ptr<IoEngine>> {
      auto fake = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 50});
      fake->SetFaults([flag = mode, bad = folders[0]](const ReadRequest& request) {
        test::FakeFault fault;
        if (!IsOn(request, bad)) return fault;
        const Mode now = *flag;
        if (now == Mode::kFails)
          fault.status = Fail(ErrorCode::kIo, request.file->path(), ": bytes ", request.offset, " to ",
                              request.offset + request.bytes, ": made to fail");
        fault.hangs = now == Mode::kHangs;
        if (now == Mode::kFlips) fault.flipped_byte = 0;
        return fault;
      });
      io = fake.get();
      return fake;
    };
    engine = std::make_unique<test::OpenedEngine>(options, factory, [](IoSchedulerOptions& o) {
      o.hang_seconds_with_copy = 0.1;
      o.hang_seconds = 0.3;
    });
    EXPECT_TRUE(engine->ok());
  }

  // An engine that ends waits for its reads.
  ~Misbehaving() { io->ReleaseHung(); }

  Result<std::vector<float>> Run() {
    DFIN_TRY(Session session, (*engine)->NewSession());
    return test::AllLogits(**engine, session, tokens, {1});
  }
  bool Matches(const Result<std::vector<float>>& logits) const {
    return logits && logits->size() == expected.size() &&
           std::memcmp(logits->data(), expected.data(), expected.size() * sizeof(float)) == 0;
  }
  // Every warning about a degraded drive.
  std::vector<std::string> degraded() const {
    std::vector<std::string> found;
    for (const std::string& warning : engine->warnings())
      if (warning.find("degraded") != std::string::npos) found.push_back(warning);
    return found;
  }
  // The error names drive, file, bytes, layer and expert.
  void ExpectNamed(const Error& error) const {
    EXPECT_THAT(error.message(), HasSubstr(folders[0]));
    EXPECT_THAT(error.message(), HasSubstr(".bin"));
    EXPECT_THAT(error.message(), testing::ContainsRegex("layer [0-9]+, expert [0-9]+"));
    EXPECT_THAT(error.message(), testing::ContainsRegex("bytes? [0-9]+"));
  }
};

TEST(FaultyDrive, ThatFailsIsReplacedByCopiesWithOneWarning) {
  Misbehaving m(3, 1);
  *m.mode = Mode::kFails;
  EXPECT_TRUE(m.Matches(m.Run()));
  EXPECT_TRUE(m.Matches(m.Run()));
  ASSERT_EQ(m.degraded().size(), 1u);
  EXPECT_THAT(m.degraded()[0], HasSubstr(m.folders[0]));
}

TEST(FaultyDrive, ThatHangsIsReplacedByCopiesWithOneWarning) {
  Misbehaving m(3, 1);
  *m.mode = Mode::kHangs;
  EXPECT_TRUE(m.Matches(m.Run()));
  EXPECT_TRUE(m.Matches(m.Run())) << "while the first reads still hang";
  EXPECT_TRUE((*m.engine)->hangs());
  ASSERT_EQ(m.degraded().size(), 1u);
  m.io->ReleaseHung();
  EXPECT_TRUE(m.Matches(m.Run())) << "after they came back";
}

TEST(FaultyDrive, WithoutCopiesEndsTheRequestWithEverythingNamedAndTheEngineGoesOn) {
  Misbehaving m(3, 0);
  *m.mode = Mode::kFails;
  const auto failed = m.Run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  m.ExpectNamed(failed.error());
  *m.mode = Mode::kFine;
  EXPECT_TRUE(m.Matches(m.Run()));
}

TEST(FaultyDrive, ThatHangsWithoutCopiesEndsTheRequestAndTheEngineGoesOn) {
  Misbehaving m(3, 0);
  *m.mode = Mode::kHangs;
  const auto failed = m.Run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kDeadline);
  m.ExpectNamed(failed.error());
  *m.mode = Mode::kFine;
  m.io->ReleaseHung();
  EXPECT_TRUE(m.Matches(m.Run()));
}

TEST(FaultyDrive, ThatHangsDoesNotKeepAProcessFromEnding) {
  Misbehaving m(2, 0);
  *m.mode = Mode::kHangs;
  ASSERT_FALSE(m.Run());
  Engine::LetGo(m.engine->Take());
  EXPECT_GT(m.io->hung(), 0u) << "the drive has not answered";
  m.io->ReleaseHung();  // what it writes now goes to memory that is still there
}

TEST(FaultyDrive, FlippedBitsAreCaughtWhenReadsAreVerified) {
  Misbehaving m(2, 0, true);
  *m.mode = Mode::kFlips;
  const auto failed = m.Run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kCorrupt);
  m.ExpectNamed(failed.error());
  *m.mode = Mode::kFine;
  EXPECT_TRUE(m.Matches(m.Run()));
}

TEST(ExpertFolders, AMissingOneIsAnErrorAndNeverASilentReturnToTheShards) {
  const test::TempFolder folder;
  EngineOptions options{.model = test::MicroFolder()};
  options.experts = {folder.path() + "/nowhere"};
  test::OpenedEngine engine(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message(), HasSubstr("nowhere"));
}

TEST(ExpertFolders, OfAnotherModelAreRefused) {
  const test::TempFolder folder;
  const auto folders = test::DriveFolders(folder.path(), 2);
  test::BuildExpertSet(test::NanoFolder(), folders);
  EngineOptions options{.model = test::MicroFolder()};
  options.experts = folders;
  test::OpenedEngine engine(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code(), ErrorCode::kCorrupt) << engine.error().message();
}

TEST(ExpertFolders, VerifyReadsNeedsASet) {
  EngineOptions options{.model = test::MicroFolder()};
  options.verify_reads = true;
  test::OpenedEngine engine(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message(), HasSubstr("--verify-reads"));
}

}  // namespace
}  // namespace deltafin
