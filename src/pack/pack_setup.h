// pack_setup: what a call of Pack finds in its target folders: an unfinished pack, a set that is to be extended,
// nothing.
//
// Locks the folders before it reads anything in them, and changes nothing but to make them. Errors as in pack.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pack/folder_locks.h"
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

Result<PackSetup> PreparePack(const PackOptions& options, const PackSource& source, FolderLocks& locks);

}  // namespace deltafin
