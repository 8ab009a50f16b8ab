// drafts_report.h: what drafting did for a request, for --stats and the "stats" event. Pure functions.
//
// Seconds and bytes are by step, so that what drafts cost and what they brought can be told apart: tokens a step beside
// seconds and bytes a step, for every number of rows.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/drafting.h"

namespace deltafin {

// {"state", "steps": [{"rows", "steps", "tokens", "seconds", "payload_bytes"}], "drafters": [{"name", "proposals",
// "drafted", "right", "seconds", "right_at", "tried_at", "failure"}]}
Json DraftFigures(const DraftReport& report);
// For a person, a line or two; "" when nothing was drafted.
std::string DraftText(const DraftReport& report);

}  // namespace deltafin
