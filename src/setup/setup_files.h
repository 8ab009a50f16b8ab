// setup_files: what is known of every file of a download before it begins or goes on: there, partly there, or missing.
//
// Puts together the file list, the journal and the folder. Reads sizes, times and, of shards that differ, headers;
// writes nothing. Functions without state. Errors: kCorrupt, kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "setup/http_client.h"
#include "setup/hub_listing.h"
#include "setup/setup_journal.h"

namespace deltafin {

struct SetupFile {
  enum class State : uint8_t {
    kMissing,       // to be fetched; `present` says what a partial file has
    kPartVerified,  // only its name is missing: the partial file is as it was when it was verified
    kUnchecked,     // there, with the right size
    kThere,
    kMoved,  // a shard that gave up its experts
  };
  HubFile file;
  uint32_t number = 0;  // in the list, and so in the journal
  std::string path;
  bool is_shard = false;
  State state = State::kMissing;
  std::vector<HttpRange> present = {};  // sorted, apart from each other
  // Missing, although the journal says that it was verified: that must be taken back before anything of it is fetched.
  bool was_taken_away = false;

  bool has_checksum() const { return !file.sha256.empty() || !file.git_sha1.empty(); }
  bool there() const { return state == State::kThere || state == State::kMoved; }
};

// The files to fetch, small ones first, then the shards; each sorted by name. Hidden files and such that deltafin
// writes itself are left out; `left_out` gets their names.
std::vector<SetupFile> ChooseFiles(const HubListing& listing, const std::string& folder,
                                   std::vector<std::string>& left_out);
// Fills in states. kCorrupt when a file is there that is not the repository's.
Status FindStates(const std::vector<SetupEntry>& entries, std::vector<SetupFile>& files);
// For the journal: equal for equal lists only.
uint64_t ListingHash(const HubListing& listing);

}  // namespace deltafin
