// test_data.h: where tests find data: what the repository carries, and what only some machines have.
#pragma once

#include <optional>
#include <string>

namespace deltafin::test {

// A file or folder of the repository, e.g. RepoPath("models/k3-nano"). Always exists.
std::string RepoPath(const std::string& relative);

// The shared data folder beside the checkout, if there is one: SharedPath("data/k3-tokenizer"). A test that needs it skips
// with GTEST_SKIP() when this is empty.
std::optional<std::string> SharedPath(const std::string& relative);

// A fresh empty folder, removed when the object dies.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace deltafin::test
