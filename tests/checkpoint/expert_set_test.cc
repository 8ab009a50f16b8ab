// Opening expert sets: what is accepted, what is refused, and what is said.
#include "checkpoint/expert_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/micro_copy.h"
#include "io/io_scheduler.h"
#include "support/expert_set_builder.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

using test::BuildExpertSet;
using test::BuiltExpertSet;
using test::ExpertSetOptions;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ExpertSetTest : public ::testing::Test {
 protected:
  void Build(const ExpertSetOptions& options = {.rates = {3, 2, 1}}) {
    ExpertSetOptions all = options;
    if (all.rates.empty()) all.rates = {3, 2, 1};
    all.page = 0;
    built_ = BuildExpertSet(model_, test::DriveFolders(parent_.path(), static_cast<int>(all.rates.size())), all);
  }
  static ModelSpec Spec() { return Checkpoint::Open({test::RepoPath("tests/data/k3-micro"), ""})->spec(); }
  Result<ExpertSet> Open(const std::vector<std::string>& folders) { return ExpertSet::Open(folders, spec_); }
  Result<ExpertSet> Open() { return Open(built_.folders); }
  std::string Message(const std::vector<std::string>& folders) {
    const Result<ExpertSet> opened = Open(folders);
    return opened ? "opened" : opened.error().message();
  }
  std::string Message() { return Message(built_.folders); }
  ErrorCode Code() {
    const Result<ExpertSet> opened = Open();
    return opened ? ErrorCode::kInternal : opened.error().code();
  }
  std::string File(size_t drive, const std::string& name) const { return built_.folders[drive] + "/" + name; }
  std::string Piece(size_t drive) const { return File(drive, built_.manifest.tables[0].pieces[drive].file); }
  std::string Manifest(size_t drive) const { return File(drive, ManifestFileName(built_.manifest.generation)); }
  static void Truncate(const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); }
  static void Flip(const std::string& path, size_t at) {
    std::string bytes = test::ReadBytes(path);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 4);
    test::WriteBytes(path, bytes);
  }

  const std::string model_ = test::RepoPath("tests/data/k3-micro");
  const ModelSpec spec_ = Spec();
  test::TempFolder parent_;
  BuiltExpertSet built_;
};

TEST_F(ExpertSetTest, OpensInAnyOrderOfItsFolders) {
  Build();
  std::vector<std::string> folders = built_.folders;
  std::sort(folders.begin(), folders.end());
  do {
    const Result<ExpertSet> opened = Open(folders);
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_EQ(opened->folders(), built_.folders);
    EXPECT_EQ(opened->manifest().set_id, built_.manifest.set_id);
    ASSERT_EQ(opened->drives().size(), 3u);
    EXPECT_EQ(opened->drives()[1].name, built_.folders[1]);
    EXPECT_EQ(opened->drives()[1].bytes_per_second, 2);
  } while (std::next_permutation(folders.begin(), folders.end()));
}

TEST_F(ExpertSetTest, NothingIsWrittenToItsFolders) {
  Build({.replicas = 1});
  const auto times = [&] {
    std::vector<std::pair<std::string, fs::file_time_type>> all;
    for (const auto& entry : fs::recursive_directory_iterator(parent_.path()))
      all.emplace_back(entry.path().string(), entry.last_write_time());
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto before = times();
  ASSERT_TRUE(Open());
  ASSERT_TRUE(Open({built_.folders[0], built_.folders[2]}));
  EXPECT_EQ(times(), before);
}

TEST_F(ExpertSetTest, PartsCoverTheRecordOnceWithOneReadADrive) {
  Build();
  const Result<ExpertSet> set = Open();
  ASSERT_TRUE(set);
  std::vector<std::byte> slot(4096);
  ReadPart parts[IoScheduler::kMaxParts];
  const size_t count = set->Parts({2, 17}, slot.data(), 4, parts);
  ASSERT_EQ(count, 3u);
  uint64_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(parts[i].drive, 4 + static_cast<int>(i));
    EXPECT_EQ(parts[i].request.destination, slot.data() + at);
    EXPECT_EQ(parts[i].request.offset % 512, 0u);
    EXPECT_EQ(parts[i].copy.file, nullptr);
    at += parts[i].request.bytes;
  }
  EXPECT_EQ(at, 3584u);
  EXPECT_FALSE(set->HasCopy({2, 17}));
  EXPECT_THAT(set->Where({2, 17}, 0), AllOf(HasSubstr(Piece(0)), HasSubstr(", byte ")));
  EXPECT_THAT(set->Where({2, 17}, RecordRange{0, 3584}),
              AllOf(HasSubstr(Piece(0)), HasSubstr(Piece(1)), HasSubstr(Piece(2)), HasSubstr(" to ")));
}

TEST_F(ExpertSetTest, SomeRecordsHaveSecondCopiesOnOtherDrives) {
  Build({.replicas = 0.5});
  const Result<ExpertSet> set = Open();
  ASSERT_TRUE(set) << set.error().message();
  int with_copy = 0;
  ReadPart parts[IoScheduler::kMaxParts];
  std::vector<std::byte> slot(4096);
  for (int number = 0; number < 200; ++number) {
    const ExpertKey key{1 + number / 40, number % 40};
    with_copy += set->HasCopy(key) ? 1 : 0;
    const size_t count = set->Parts(key, slot.data(), 0, parts);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(parts[i].copy.file != nullptr, set->HasCopy(key));
      EXPECT_NE(parts[i].copy.drive, parts[i].drive);
    }
  }
  EXPECT_EQ(with_copy, 100);
}

TEST_F(ExpertSetTest, PartsWithWrongBytesComeFromTheirCopiesOnly) {
  Build({.replicas = 1});
  const Result<ExpertSet> set = Open();
  ASSERT_TRUE(set);
  std::vector<std::byte> slot(4096);
  ReadPart parts[IoScheduler::kMaxParts];
  const RecordRange bad[] = {{0, 1}};
  const size_t count = set->PartsAvoiding({1, 3}, slot.data(), 0, bad, parts);
  ASSERT_GT(count, 0u);
  EXPECT_NE(parts[0].drive, 0);
  EXPECT_EQ(parts[0].copy.file, nullptr);
  for (size_t i = 0; i < count; ++i)
    EXPECT_EQ(parts[i].copy.file == nullptr, parts[i].request.destination < slot.data() + 1536) << i;
}

TEST_F(ExpertSetTest, WithoutCopiesThereIsNothingToAvoid) {
  Build();
  const Result<ExpertSet> set = Open();
  ASSERT_TRUE(set);
  ReadPart parts[IoScheduler::kMaxParts];
  std::vector<std::byte> slot(4096);
  const RecordRange bad[] = {{0, 1}};
  EXPECT_EQ(set->PartsAvoiding({1, 3}, slot.data(), 0, bad, parts), 0u);
}

// Faults of one drive. Without second copies each is an error that names the folder or file; with them a warning.
struct DriveFault {
  std::string name;
  std::function<void(const std::string& folder, const BuiltExpertSet& set)> make;
  ErrorCode code;
  std::string says;
};
void PrintTo(const DriveFault& fault, std::ostream* out) { *out << fault.name; }

class DriveFaults : public ExpertSetTest, public ::testing::WithParamInterface<DriveFault> {};

std::string PieceOf(const BuiltExpertSet& set) { return set.manifest.tables[0].pieces[1].file; }

INSTANTIATE_TEST_SUITE_P(
    OfOneDrive, DriveFaults,
    ::testing::Values(
        DriveFault{"TheFolderIsGone", [](const std::string& f, const BuiltExpertSet&) { fs::remove_all(f); },
                   ErrorCode::kIo, "mounted"},
        DriveFault{"TheDriveIsNotMounted",
                   [](const std::string& f, const BuiltExpertSet&) {
                     fs::remove_all(f);
                     fs::create_directories(f);
                   },
                   ErrorCode::kNotFound, "mounted"},
        DriveFault{"TheManifestIsTorn",
                   [](const std::string& f, const BuiltExpertSet&) {
                     fs::resize_file(f + "/" + ManifestFileName(1), fs::file_size(f + "/" + ManifestFileName(1)) / 2);
                   },
                   ErrorCode::kCorrupt, "torn"},
        DriveFault{
            "TheManifestIsEmpty",
            [](const std::string& f, const BuiltExpertSet&) { fs::resize_file(f + "/" + ManifestFileName(1), 0); },
            ErrorCode::kCorrupt, "torn"},
        DriveFault{"TheManifestIsOfAnotherGeneration",
                   [](const std::string& f, const BuiltExpertSet&) {
                     fs::rename(f + "/" + ManifestFileName(1), f + "/" + ManifestFileName(2));
                   },
                   ErrorCode::kCorrupt, "as its name says"},
        DriveFault{"AFileIsMissing",
                   [](const std::string& f, const BuiltExpertSet& s) { fs::remove(f + "/" + PieceOf(s)); },
                   ErrorCode::kNotFound, "experts-g1-t3-1.bin"},
        DriveFault{"AFileIsShort",
                   [](const std::string& f, const BuiltExpertSet& s) {
                     fs::resize_file(f + "/" + PieceOf(s), fs::file_size(f + "/" + PieceOf(s)) - 1);
                   },
                   ErrorCode::kCorrupt, "experts-g1-t3-1.bin"},
        DriveFault{"AFileIsAFolder",
                   [](const std::string& f, const BuiltExpertSet& s) {
                     fs::remove(f + "/" + PieceOf(s));
                     fs::create_directories(f + "/" + PieceOf(s));
                   },
                   ErrorCode::kCorrupt, "experts-g1-t3-1.bin"}),
    [](const auto& info) { return info.param.name; });

TEST_P(DriveFaults, AreAnErrorWithoutSecondCopies) {
  Build();
  GetParam().make(built_.folders[1], built_);
  const Result<ExpertSet> opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), GetParam().code) << opened.error().message();
  EXPECT_THAT(opened.error().message(), AllOf(HasSubstr(built_.folders[1]), HasSubstr(GetParam().says)));
}

TEST_P(DriveFaults, AreAWarningWithSecondCopies) {
  Build({.replicas = 1});
  GetParam().make(built_.folders[1], built_);
  const Result<ExpertSet> opened = Open();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_THAT(opened->warnings(), Contains(HasSubstr("drive 1 ('drive1') is missing")));
  EXPECT_THAT(opened->warnings(), Contains(HasSubstr(GetParam().says)));
  std::vector<std::byte> slot(4096);
  ReadPart parts[IoScheduler::kMaxParts];
  for (int expert = 0; expert < 40; ++expert) {
    const size_t count = opened->Parts({3, expert}, slot.data(), 0, parts);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NE(parts[i].drive, 1);
      EXPECT_NE(parts[i].copy.drive, 1);
      bytes += parts[i].request.bytes;
    }
    EXPECT_EQ(bytes, 3584u);
    EXPECT_FALSE(opened->HasCopy({3, expert})) << "what lay on drive 1 has one copy left";
  }
}

TEST_P(DriveFaults, AreAnErrorWhereOnlySomeRecordsHaveSecondCopies) {
  Build({.replicas = 0.9});
  GetParam().make(built_.folders[1], built_);
  EXPECT_EQ(Code(), GetParam().code);
}

TEST_F(ExpertSetTest, AMissingDriveThatIsNotGivenIsNamed) {
  Build();
  const Result<ExpertSet> opened = Open({built_.folders[0], built_.folders[2]});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr("drive 1 ('drive1')"));
}

TEST_F(ExpertSetTest, TwoMissingDrivesAreAnErrorEvenWithSecondCopies) {
  Build({.replicas = 1});
  EXPECT_EQ(Message({built_.folders[0], built_.folders[1]}), "opened");
  // Neither the first drive's pieces nor all their copies are on the last one.
  EXPECT_THAT(Message({built_.folders[2]}), HasSubstr("expected its folder among those given"));
}

TEST_F(ExpertSetTest, ADamagedIndexIsReplacedByAnotherDrivesCopy) {
  Build();
  Flip(File(0, built_.manifest.index_file), 500);
  Truncate(File(1, built_.manifest.index_file));
  const Result<ExpertSet> opened = Open();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_THAT(opened->warnings(), Contains(AllOf(HasSubstr(File(0, built_.manifest.index_file)),
                                                 HasSubstr("another drive's copy of the index is used"))));
  EXPECT_THAT(opened->warnings(), Contains(HasSubstr(File(1, built_.manifest.index_file))));
  EXPECT_EQ(opened->ChunkHashes({1, 0})[0], built_.index.chunk_hashes[0]);
  fs::remove(File(2, built_.manifest.index_file));
  EXPECT_EQ(Code(), ErrorCode::kCorrupt);
}

TEST_F(ExpertSetTest, TheNewestGenerationThatIsOnAllItsDrivesWins) {
  Build({.rates = {1, 1}});
  const ExpertSetManifest old = built_.manifest;
  Build({.rates = {2, 1}, .generation = 2});
  EXPECT_EQ(Open()->manifest().generation, 2u);
  // A publish that was interrupted between two drives.
  fs::remove(Manifest(1));
  const Result<ExpertSet> opened = Open();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->manifest().generation, 1u);
  EXPECT_THAT(opened->warnings(), Contains(HasSubstr("generation 2 is not complete; generation 1 is used")));
}

TEST_F(ExpertSetTest, AnOlderGenerationWhoseFilesAreGoneIsNotUsed) {
  Build({.rates = {1, 1}});
  const std::string old_piece = Piece(0);
  Build({.rates = {2, 1}, .generation = 2});
  fs::remove(Manifest(1));
  fs::remove(old_piece);
  EXPECT_THAT(Message(), HasSubstr("generation 2: drive 1 ('drive1')"));
}

TEST_F(ExpertSetTest, AStaleDriveIsAnErrorWithoutAndAWarningWithSecondCopies) {
  for (const double replicas : {0.0, 1.0}) {
    Build({.rates = {1, 1, 1}});
    const std::string old_manifest = test::ReadBytes(Manifest(2));
    Build({.rates = {2, 1, 1}, .replicas = replicas, .generation = 2});
    // Drive 2 was away while the others were rebalanced and lost their first generation.
    fs::remove(Manifest(2));
    for (const size_t drive : {0, 1}) fs::remove(File(drive, ManifestFileName(1)));
    const Result<ExpertSet> opened = Open();
    if (replicas == 0) {
      ASSERT_FALSE(opened);
      EXPECT_THAT(opened.error().message(), HasSubstr("generation 2: drive 2 ('drive2')"));
    } else {
      ASSERT_TRUE(opened) << opened.error().message();
      EXPECT_EQ(opened->manifest().generation, 2u);
      EXPECT_THAT(opened->warnings(), Contains(AllOf(HasSubstr(built_.folders[2]), HasSubstr("stale"))));
    }
    fs::remove_all(parent_.path());
  }
}

TEST_F(ExpertSetTest, ADriveThatLeftTheSetIsOnlyWarnedAbout) {
  Build({.rates = {1, 1, 1}});
  const std::vector<std::string> all = built_.folders;
  Build({.rates = {1, 1}, .generation = 2});
  const Result<ExpertSet> opened = Open(all);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->manifest().generation, 2u);
  EXPECT_THAT(opened->warnings(), Contains(AllOf(HasSubstr(all[2]), HasSubstr("stale"))));
}

TEST_F(ExpertSetTest, FoldersOfDifferentSetsAreRefused) {
  Build({.rates = {1, 1}});
  test::TempFolder other;
  const BuiltExpertSet foreign =
      BuildExpertSet(model_, test::DriveFolders(other.path(), 2), {.set_id = 0xabc, .page = 512});
  const Result<ExpertSet> opened = Open({built_.folders[0], built_.folders[1], foreign.folders[1]});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(opened.error().message(),
              AllOf(HasSubstr(foreign.folders[1]), HasSubstr(ToHex(0xabc)), HasSubstr(built_.folders[0])));
}

TEST_F(ExpertSetTest, TwoFoldersOfOneDriveAreRefusedAndTheSameFolderTwiceIsNot) {
  Build({.rates = {1, 1}});
  const std::string copy = parent_.path() + "/copy";
  fs::copy(built_.folders[1], copy, fs::copy_options::recursive);
  const Result<ExpertSet> opened = Open({built_.folders[0], built_.folders[1], copy});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(opened.error().message(), AllOf(HasSubstr(copy), HasSubstr(built_.folders[1]), HasSubstr("drive 1")));
  EXPECT_EQ(Message({built_.folders[0], copy}), "opened");
  const Result<ExpertSet> twice = Open({built_.folders[0], built_.folders[1], built_.folders[1] + "/../drive1"});
  ASSERT_TRUE(twice) << twice.error().message();
  EXPECT_THAT(twice->warnings(), Contains(HasSubstr("named twice")));
}

TEST_F(ExpertSetTest, AnotherModelsShapeIsRefusedNamingWhatDiffers) {
  Build();
  const std::vector<std::pair<std::string, std::function<void(ModelSpec&)>>> cases = {
      {"experts of a layer", [](ModelSpec& s) { s.num_experts += 1; }},
      {"moe_intermediate_size", [](ModelSpec& s) { s.moe_intermediate_size += 32; }},
      {"routed expert width", [](ModelSpec& s) { s.routed_expert_hidden_size += 32; }},
      {"layers with experts", [](ModelSpec& s) { s.num_moe_layers += 1, s.layers.resize(s.layers.size() + 1); }},
      {"first layer with experts", [](ModelSpec& s) { s.layers.resize(s.layers.size() + 1); }}};
  for (const auto& [name, change] : cases) {
    ModelSpec spec = spec_;
    change(spec);
    const Result<ExpertSet> opened = ExpertSet::Open(built_.folders, spec);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(opened.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(opened.error().message(), AllOf(HasSubstr(name), HasSubstr("another model")));
  }
}

TEST_F(ExpertSetTest, AnIncompleteSetOpensOnlyForThoseWhoAskForIt) {
  Build({.leave_out = 7});
  EXPECT_EQ(Code(), ErrorCode::kNotFound);
  EXPECT_THAT(Message(), AllOf(HasSubstr("expected 200 experts, got 193"), HasSubstr("pack")));
  const Result<ExpertSet> opened = ExpertSet::Open(built_.folders, spec_, ExpertSet::Need::kAnyRecords);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->Entry({5, 39}).slot, kNoSlot);
  EXPECT_NE(opened->Entry({1, 0}).slot, kNoSlot);
}

TEST_F(ExpertSetTest, FoldersOfOneDeviceAreWarnedAbout) {
  Build({.rates = {1, 1}});
  EXPECT_THAT(Open()->warnings(), Contains(HasSubstr("are on one device")));
  Build({.rates = {1}, .generation = 2});
  EXPECT_THAT(Open()->warnings(), Not(Contains(HasSubstr("are on one device"))));
}

TEST_F(ExpertSetTest, ADriveThatIsFasterThroughThePageCacheIsReadSoAndTheOthersDirectly) {
  Build({.rates = {1, 1}});
  const Result<ExpertSet> opened =
      ExpertSet::Open(built_.folders, spec_, ExpertSet::Need::kAllRecords,
                      [&](const std::string& folder) { return folder == built_.folders[1]; });
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_THAT(opened->warnings(), Not(Contains(HasSubstr("cannot be read directly"))));
  std::vector<std::byte> slot(1 << 20);
  ReadPart parts[IoScheduler::kMaxParts];
  const size_t count = opened->Parts({1, 0}, slot.data(), 0, parts);
  ASSERT_EQ(count, 2u);
  for (const ReadPart& part : std::span(parts, count)) EXPECT_EQ(part.request.file->buffered(), part.drive == 1);
}

TEST_F(ExpertSetTest, NoFolderOrOneThatIsAFileIsRefused) {
  Build();
  EXPECT_THAT(Message({}), HasSubstr("got none"));
  EXPECT_THAT(Message({Piece(0)}), HasSubstr("something else"));
}

}  // namespace
}  // namespace deltafin
