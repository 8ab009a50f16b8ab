// pack_setup: what a call of Pack finds: target folders, an unfinished pack, a set that is to be extended, free space.
//
// Changes nothing but to make target folders. Errors as in pack.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_source.h"
#include "pack/set_state.h"

namespace deltafin {

struct PackSetup {
  std::vector<std::string> folders;              // by drive of the set
  SetState state;                                // with everything that is done already
  std::optional<PackJournal::Contents> journal;  // of an unfinished pack with the same options
  std::string header;                            // the journal's
  bool published = false;      // the journal's generation is on all drives already; only tidying is left
  uint64_t resumed_bytes = 0;  // that the journal speaks of
  std::vector<std::string> notes;
};

Result<PackSetup> PreparePack(const PackOptions& options, const PackSource& source);

// Target folders with their full paths: made, writable, each once.
Result<std::vector<std::string>> PrepareFolders(const std::vector<PackTarget>& targets);
// Sentences about folders that share a device.
std::vector<std::string> SharedDevices(const std::vector<std::string>& folders);
// kInvalidArgument naming the first file that is in the way of a new set.
Status CheckNothingInTheWay(const std::vector<std::string>& folders, std::string_view prefix);

struct SpaceNeed {
  std::string folder;
  uint64_t bytes = 0;
};
// Adds up folders on one device. `freed` bytes of `freed_in` come back while the work goes on.
Status CheckSpace(const std::vector<SpaceNeed>& needs, const std::string& freed_in, uint64_t freed);

}  // namespace deltafin
