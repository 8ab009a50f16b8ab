// Faults of expert sets and of packed dense weights.
#include <filesystem>
#include <fstream>

#include "doctor/doctor_case.h"
#include "pack/pack_case.h"
#include "pack/pack_dense.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
constexpr auto kFault = FindingState::kFault;
constexpr auto kWarning = FindingState::kWarning;
constexpr auto kOk = FindingState::kOk;

class PackedFaults : public testing::Test {
 protected:
  void PackExperts() { ASSERT_TRUE(Pack(c_.Options(c_.drives(2)), {}, {})); }
  void PackDenseWeights() {
    PackDenseOptions options;
    options.model = c_.model();
    options.to = Dense();
    options.io = "pread";
    const auto packed = PackDense(options, {}, {});
    ASSERT_TRUE(packed) << packed.error().message();
  }
  std::string Dense() const { return c_.root() + "/dense"; }
  DoctorOptions Options() const {
    DoctorOptions options = OptionsFor(c_.model());
    options.quick = false;
    options.self_test_model = RepoPath("tests/data/k3-micro");
    return options;
  }
  DoctorOptions WithExperts() const {
    DoctorOptions options = Options();
    options.experts = c_.drives(2);
    return options;
  }
  DoctorOptions WithDense() const {
    DoctorOptions options = Options();
    options.dense = Dense();
    return options;
  }

  PackCase c_;
  PlantedHost host_;
};

TEST_F(PackedFaults, NoneOfThemInWhatWasPacked) {
  PackExperts();
  PackDenseWeights();
  DoctorOptions options = WithExperts();
  options.dense = Dense();
  const std::vector<Finding> findings = Examine(options, host_);
  ExpectFinding(findings, kOk, "experts.complete", "36 of 36 experts");
  ExpectFinding(findings, kOk, "experts.sample", "36 of 36 experts read");
  ExpectFinding(findings, kOk, "dense.complete");
  ExpectFinding(findings, kOk, "dense.sample");
  ExpectFinding(findings, kOk, "start.plan", "36 experts");
  for (const Finding& f : findings)
    EXPECT_TRUE(f.state != kFault || f.name == "tokenizer.missing") << f.name << ": " << f.found;
}

TEST_F(PackedFaults, AFlippedBitInARecordIsNamedWithFileRangeLayerAndExpert) {
  PackExperts();
  const std::string path = c_.drive(1) + "/experts-g1-t3-1.bin";
  FlipByte(path, 6 * kPackPage + 17);
  const std::vector<Finding> findings = Examine(WithExperts(), host_);
  ExpectFinding(findings, kFault, "experts.record-damaged", "layer 1, expert 1: " + path);
  DoctorOptions quick = WithExperts();
  quick.quick = true;
  EXPECT_EQ(Named(Examine(quick, host_), "experts.record-damaged").name, "");
}

TEST_F(PackedFaults, ATruncatedFileOfRecordsIsNamed) {
  PackExperts();
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
  fs::resize_file(path, fs::file_size(path) - kPackPage);
  ExpectFinding(Examine(WithExperts(), host_), kFault, "experts.unreachable", path);
}

TEST_F(PackedFaults, ADriveThatPackNotedAndThatIsNotMountedIsNamed) {
  PackExperts();
  fs::rename(c_.drive(1), c_.drive(1) + "-away");
  ExpectFinding(Examine(Options(), host_), kFault, "drive.unmounted", c_.drive(1) + ", which pack noted, is not there");
  fs::create_directory(c_.drive(1));  // a mount point without its drive
  const std::vector<Finding> findings = Examine(Options(), host_);
  ExpectFinding(findings, kFault, "drive.unmounted", c_.drive(1) + ", which pack noted, is empty");
  ExpectFinding(findings, kFault, "experts.unreachable");
}

TEST_F(PackedFaults, TheExpertsOfAnotherModelAreFound) {
  PackExperts();
  c_.MakeAnotherModel();
  const std::vector<Finding> findings = Examine(WithExperts(), host_);
  ExpectFinding(findings, kFault, "experts.other-model");
  ExpectFinding(findings, FindingState::kNote, "start.not-tried");
}

TEST_F(PackedFaults, AnUnfinishedPackIsFound) {
  InterruptMove(c_.Options(c_.drives(2)), 1);
  ExpectFinding(Examine(WithExperts(), host_), kWarning, "pack.unfinished", c_.drive(0));
}

TEST_F(PackedFaults, ADamagedJournalIsFound) {
  InterruptMove(c_.Options(c_.drives(2)), 1);
  WriteFileBytes(c_.drive(0) + "/deltafin-pack.journal", std::string(300, 'x'));
  ExpectFinding(Examine(WithExperts(), host_), kFault, "pack.journal-damaged", c_.drive(0));
}

TEST_F(PackedFaults, ADamagedManifestIsFound) {
  PackExperts();
  for (const std::string& folder : c_.drives(2)) FlipByte(folder + "/deltafin-experts-g1.json", 40);
  ExpectFinding(Examine(WithExperts(), host_), kFault, "experts.unreachable", "deltafin-experts-g1.json");
}

TEST_F(PackedFaults, ADamagedNoteOfPackIsFound) {
  PackExperts();
  WriteFileBytes(c_.model() + "/deltafin-experts.json", "{}");
  ExpectFinding(Examine(Options(), host_), kFault, "experts.note-damaged", "deltafin-experts.json");
}

TEST_F(PackedFaults, TheDenseWeightsOfAnotherModelAreFound) {
  PackDenseWeights();
  c_.MakeAnotherModel();
  ExpectFinding(Examine(WithDense(), host_), kFault, "dense.other-model", Dense());
}

TEST_F(PackedFaults, AFlippedBitInDenseWeightsIsFound) {
  PackDenseWeights();
  FlipByte(Dense() + "/deltafin-dense-layer-001.bin", 5000);
  ExpectFinding(Examine(WithDense(), host_), kFault, "dense.damaged", "deltafin-dense-layer-001.bin");
}

TEST_F(PackedFaults, ATruncatedFileOfDenseWeightsIsFound) {
  PackDenseWeights();
  fs::resize_file(Dense() + "/deltafin-dense-head.bin", 4096);
  ExpectFinding(Examine(WithDense(), host_), kFault, "dense.damaged", "deltafin-dense-head.bin");
}

TEST_F(PackedFaults, AnUnfinishedPackOfDenseWeightsIsFound) {
  PackDenseWeights();
  fs::rename(Dense() + "/deltafin-dense.json", Dense() + "/deltafin-dense.partial.json");
  ExpectFinding(Examine(WithDense(), host_), kFault, "dense.unfinished", Dense());
}

}  // namespace
}  // namespace deltafin::test
