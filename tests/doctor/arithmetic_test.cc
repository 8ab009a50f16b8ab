// The test of the arithmetic: agreement, and expectations that were planted wrong.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "doctor/doctor_case.h"
#include "pack/pack_case.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

class Arithmetic : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(RepoPath("tests/data/k3-micro"), model_, fs::copy_options::recursive);
    options_ = OptionsFor("");
    options_.quick = false;
    options_.self_test_model = model_;
  }
  std::vector<Finding> Findings() { return Examine(options_, host_); }

  TempFolder root_;
  const std::string model_ = root_.path() + "/micro";
  DoctorOptions options_;
  PlantedHost host_;
};

TEST_F(Arithmetic, OfASoundMachineAgrees) {
  const std::vector<Finding> findings = Findings();
  EXPECT_EQ(Problems(findings), "");
  for (const std::string& isa : host_.instruction_sets)
    ExpectFinding(findings, FindingState::kOk, "self-test.scores", isa);
  ExpectFinding(findings, FindingState::kOk, "self-test.answers");
}

TEST_F(Arithmetic, OfTheBundledModelAgrees) {
  options_.self_test_model = RepoPath("models/k3-nano");
  EXPECT_EQ(Problems(Findings()), "");
}

TEST_F(Arithmetic, AnotherAnswerIsAFault) {
  const std::string path = model_ + "/expected_greedy.json";
  Json json = Json::parse(ReadFileBytes(path));
  Json& one = json.is_array() ? json[0] : json;
  one["new_ids"][2] = one["new_ids"][2].get<int>() + 1;
  WriteFileBytes(path, json.dump());
  ExpectFinding(Findings(), FindingState::kFault, "self-test.mismatch", "at token 3");
}

TEST_F(Arithmetic, OtherScoresAreAFault) {
  const std::string path = model_ + "/expected.golden";
  std::string bytes = ReadFileBytes(path);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  const Json header = Json::parse(bytes.substr(8, length));
  const uint64_t at = 8 + length + header["logits"]["data_offsets"][0].get<uint64_t>();
  bytes[at + 3] = '\x41';  // the first score becomes 8 or more
  bytes[at + 2] = '\x7f';
  WriteFileBytes(path, bytes);
  ExpectFinding(Findings(), FindingState::kFault, "self-test.mismatch", "scores differ");
}

TEST_F(Arithmetic, DamagedExpectationsAreToldApartFromWrongResults) {
  WriteFileBytes(model_ + "/expected.golden", "short");
  WriteFileBytes(model_ + "/expected_greedy.json", "[{\"prompt_ids\": [1], \"new_ids\": [-4]}]");
  const std::vector<Finding> findings = Findings();
  ExpectFinding(findings, FindingState::kWarning, "self-test.not-run", "expected.golden");
  ExpectFinding(findings, FindingState::kWarning, "self-test.not-run", "expected_greedy.json");
}

TEST_F(Arithmetic, WithoutTheBundledModelIsNotTested) {
  options_.self_test_model.clear();
  ExpectFinding(Findings(), FindingState::kWarning, "self-test.no-model");
}

}  // namespace
}  // namespace deltafin::test
