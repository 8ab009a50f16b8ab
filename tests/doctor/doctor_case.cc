#include "doctor/doctor_case.h"

#include <algorithm>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "support/test_data.h"

namespace deltafin::test {

namespace fs = std::filesystem;

DoctorOptions OptionsFor(const std::string& model) {
  static const std::vector<BackendFactory> backends = {{"cpu", CreateCpuBackend},
                                                       {"reference", CreateReferenceBackend}};
  DoctorOptions options;
  options.model = model;
  options.quick = true;
  options.backends = &backends;
  return options;
}

std::vector<Finding> Examine(const DoctorOptions& options, const Host& host) {
  Result<std::vector<Finding>> findings = RunDoctor(options, host);
  EXPECT_TRUE(findings) << (findings ? "" : findings.error().message());
  return findings ? std::move(*findings) : std::vector<Finding>();
}

Finding Named(const std::vector<Finding>& findings, const std::string& name) {
  const auto it = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.name == name; });
  return it == findings.end() ? Finding() : *it;
}

std::string Problems(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings)
    if (f.state == FindingState::kWarning || f.state == FindingState::kFault)
      text += Cat(ToString(f.state), " ", f.name, ": ", f.found, "\n");
  return text;
}

void ExpectFinding(const std::vector<Finding>& findings, FindingState state, const std::string& name,
                   const std::string& text) {
  const auto matches = [&](const Finding& f) {
    return f.name == name && f.state == state && f.found.find(text) != std::string::npos;
  };
  const auto it = std::find_if(findings.begin(), findings.end(), matches);
  ASSERT_NE(it, findings.end()) << "no " << ToString(state) << " " << name << " with \"" << text << "\" among\n"
                                << Problems(findings);
  if (state == FindingState::kOk) return;
  EXPECT_NE(it->why, "") << name;
  EXPECT_TRUE(state == FindingState::kNote || !it->fix.empty()) << name;
}

void LinkNano(const std::string& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(RepoPath("models/k3-nano"))) {
    const fs::path to = fs::path(folder) / entry.path().filename();
    if (entry.path().extension() == ".safetensors")
      fs::create_symlink(entry.path(), to);
    else
      fs::copy_file(entry.path(), to);
  }
}

}  // namespace deltafin::test
