// unfinished_download: whether setup has begun to bring a model into a folder and has not ended: one sentence instead
// of a complaint about each file that is still to come.
//
// Reads the first line of setup's journal and the list of files, and looks which of them are there. A function without
// state; what cannot be read says nothing.
#pragma once

#include <string>

namespace deltafin {

inline constexpr const char* kSetupJournalName = "deltafin-setup.journal";

// "" when no download has begun there, or it has ended.
std::string UnfinishedDownload(const std::string& folder);

}  // namespace deltafin
