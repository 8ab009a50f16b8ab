// bench_targets: the folders that bench run reads from, the devices below them, and making their files cold.
//
// Folders are those of the options, and those that the engine named when it ran. Thread rule: one thread. Errors: those
// of io/cold_files.h.
#pragma once

#include <string>
#include <vector>

#include "app/bench_arms.h"
#include "io/cold_files.h"

namespace deltafin {

class BenchTargets {
 public:
  BenchTargets(const std::vector<CommonOptions>& settings, bool drop_caches);

  // Adds the folders among the names of `drives`, and says which devices there are.
  std::vector<BenchDevice> Devices(const std::vector<OwnDrive>& drives);
  Status MakeCold();
  // What MakeCold did, in a sentence or two.
  std::string Describe() const;
  // Much of it stayed in memory; "": it did not.
  std::string Warning() const;

 private:
  void Add(const std::string& folder);

  std::vector<std::string> folders_;
  const bool drop_caches_;
  ForgottenFiles last_;
  uint64_t most_still_cached_ = 0;
};

}  // namespace deltafin
