// Download: whether a model folder is what an interrupted `deltafin setup` left, and the command that brings what
// lacks.
//
// Reads setup's journal and looks for partial files; changes nothing. Functions without state.
#pragma once

#include <optional>
#include <string>

#include "doctor/subject.h"

namespace deltafin {

// The whole command, where a journal or a manifest says what was fetched from where; "" where nobody knows.
std::string KnownSetupCommand(const Subject& subject);
// Fetches what is missing. `advice` where the source is not known.
Remedy FetchMissing(const Subject& subject);
// The same, after removing the damaged file at `path`, which setup would keep.
Remedy FetchAgain(const Subject& subject, const std::string& path);

// What is there, in words, of a download that has not ended; empty: there is no such download.
std::optional<std::string> UnfinishedDownload(const Subject& subject);

}  // namespace deltafin
