// `deltafin doctor` from outside: exit codes, text and JSON, and that nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/doctor_report.h"
#include "base/json.h"
#include "doctor/doctor_case.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

ProcessResult Doctor(std::vector<std::string> arguments, std::function<void()> in_child = {}) {
  arguments.insert(arguments.begin(), "doctor");
  ProcessOptions options;
  options.arguments = std::move(arguments);
  options.in_child = std::move(in_child);
  return RunProcess(DELTAFIN_PROGRAM, options);
}

class DoctorCommand : public testing::Test {
 protected:
  void SetUp() override { LinkNano(model_); }
  const TempFolder root_;
  const std::string model_ = root_.path() + "/model";
};

TEST_F(DoctorCommand, OfASoundModelEndsWithZeroAndTestsTheArithmeticOfTheBundledOne) {
  const ProcessResult result = Doctor({"--model", model_, "--no-state", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["faults"], 0);
  std::set<std::string> names;
  for (const Json& finding : report["findings"]) names.insert(finding["name"].get<std::string>());
  EXPECT_TRUE(names.contains("self-test.answers"));
  EXPECT_TRUE(names.contains("program.versions"));
  EXPECT_TRUE(names.contains("model.complete"));
}

TEST_F(DoctorCommand, WithAFaultEndsWithSixAndNamesIt) {
  fs::remove(model_ + "/model-00003-of-000010.safetensors");
  const ProcessResult text = Doctor({"--model", model_, "--no-state", "--quick"});
  EXPECT_EQ(text.exit_code, 6);
  EXPECT_THAT(text.out, HasSubstr("fault  model.shard-missing: " + model_ + "/model-00003-of-000010.safetensors"));
  EXPECT_THAT(text.out, HasSubstr("why: "));
  EXPECT_THAT(text.out, HasSubstr("do:  deltafin setup "));
  EXPECT_THAT(text.out, Not(HasSubstr("\033")));
  const Json report = Json::parse(Doctor({"--model", model_, "--no-state", "--quick", "--json"}).out);
  EXPECT_EQ(report["state"], "fault");
  EXPECT_GE(report["faults"], 1);
}

TEST_F(DoctorCommand, FoldsWhatIsInOrderUnlessAsked) {
  EXPECT_THAT(Doctor({"--no-state", "--quick"}).out, Not(HasSubstr("cpu.isa")));
  EXPECT_THAT(Doctor({"--no-state", "--quick", "--verbose"}).out, HasSubstr("ok  cpu.isa: "));
}

TEST_F(DoctorCommand, MakesAndChangesNothing) {
  const std::string state = root_.path() + "/state";
  EXPECT_EQ(Doctor({"--model", model_, "--state-dir", state}).exit_code, 0);
  EXPECT_FALSE(fs::exists(state));
  EXPECT_EQ(std::distance(fs::directory_iterator(model_), {}),
            std::distance(fs::directory_iterator(RepoPath("models/k3-nano")), {}));
}

TEST_F(DoctorCommand, RefusesOptionsThatDoNotGoTogether) {
  EXPECT_EQ(Doctor({"--experts", root_.path()}).exit_code, 2);
  EXPECT_EQ(Doctor({"--no-state", "--state-dir", root_.path()}).exit_code, 2);
  EXPECT_EQ(Doctor({"--json", "--verbose"}).exit_code, 2);
  EXPECT_EQ(Doctor({"--memory", "12"}).exit_code, 2);
}

TEST_F(DoctorCommand, FindsAFileThatTheRealSystemRefusesToOpen) {
  if (geteuid() != 0) GTEST_SKIP() << "only the superuser can take another user's place";
  const std::string config = model_ + "/config.json";
  ASSERT_EQ(chmod(config.c_str(), 0600), 0);
  ASSERT_EQ(chmod(root_.path().c_str(), 0755), 0);
  constexpr uid_t kNobody = 65534;
  const auto become_nobody = [] {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(99);
  };
  const ProcessResult result = Doctor({"--model", model_, "--no-state", "--quick"}, become_nobody);
  if (result.exit_code == 127) GTEST_SKIP() << "the program lies where other users cannot reach it";
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.out, HasSubstr("permission.unreadable: " + config + " (owner 0, mode 0600)"));
  EXPECT_THAT(result.out, HasSubstr("read by user 65534"));
}

TEST_F(DoctorCommand, StaysWithinATightLimitOfOpenFilesByNamingIt) {
  const auto few_files = [] {
    const rlimit limit{40, 40};
    setrlimit(RLIMIT_NOFILE, &limit);
  };
  const ProcessResult result = Doctor({"--model", model_, "--no-state", "--quick"}, few_files);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.out, HasSubstr("nofile.low: at most 40 open files"));
}

TEST(DoctorReport, LinesAreWrappedAndControlCharactersShown) {
  const std::vector<Finding> findings = {{FindingState::kWarning, "drives", "drive.network",
                                          "a\033[31mb " + std::string(30, 'x') + " " + std::string(30, 'y'),
                                          "why it is", "mend it", "or so"}};
  const std::string text = DoctorText(findings, {.verbose = false, .colour = false, .width = 60});
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, HasSubstr("\\x1b[31mb"));
  EXPECT_THAT(text, HasSubstr("0 faults, 1 warning, 0 notes, 0 ok"));
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 60u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace deltafin::test
