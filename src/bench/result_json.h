// result_json: a BenchResult as a JSON document (docs/FORMAT.md), and what bench compare reads back from one.
//
// Reading believes nothing: any bytes give a BenchFile or an error, and unknown members are passed over. Pure functions
// but for ReadBenchFile. Errors: kNotFound, kIo, kCorrupt (no JSON, another format, figures that make no sense).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "bench/run_figures.h"

namespace deltafin {

Json ResultToJson(const BenchResult& result);

// What of a result can be compared.
struct BenchFile {
  std::string name;  // for messages
  std::string state, reason, started, model_sha256;
  MachineDescription machine;
  std::vector<BenchArm> arms;
  std::map<std::string, std::string> prompt_sha256;  // by prompt
  std::vector<CaseFigures> figures;                  // values by round; hashes
  int rounds = 0;
};

// `path`: the document, or the folder that --out named.
Result<BenchFile> ReadBenchFile(const std::string& path);
Result<BenchFile> ParseBenchFile(std::string_view text, const std::string& name);

}  // namespace deltafin
