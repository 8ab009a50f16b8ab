// Fuzzes the reader of deltafin-files.txt: as it comes, and with its checksum made right. What is accepted names files
// below the folder only, and is read again as it was written.
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/model_files.h"
#include "require.h"

using namespace deltafin;
using fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body = "deltafin-files 1\n" + std::string(reinterpret_cast<const char*>(data), size);
  static_cast<void>(ModelFiles::FromText(std::string_view(body).substr(17), "input"));
  const auto files = ModelFiles::FromText(Cat(body, "end ", ToHex(Hash64(body)), "\n"), "made");
  if (!files) return 0;
  for (const ModelFile& file : files->files) {
    Require(!file.name.empty() && file.name.front() != '/' && file.name != ".." && !file.name.starts_with("../"));
    Require(file.name.find("/../") == std::string::npos && !file.name.ends_with("/.."));
    Require(file.sha256.size() == 64 || file.git_sha1.size() == 40);
    Require(files->Find(file.name) == &file);
  }
  const auto again = ModelFiles::FromText(files->ToText(), "again");
  Require(again.has_value() && *again == *files);
  return 0;
}
