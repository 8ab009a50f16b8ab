// chat_setup.h: from the words of --reasoning-effort to ChatOptions, for run and chat.
//
// "none" turns thinking off; low, high and max are stated to the model; anything else is refused, "medium" too, since
// the format has no such level. Pure function.
#pragma once

#include <string>

#include "base/result.h"
#include "text/chat_message.h"

namespace deltafin {

Result<ChatOptions> ChatOptionsFor(const std::string& reasoning_effort);

}  // namespace deltafin
