#include "app/chat_setup.h"

namespace deltafin {

Result<ChatOptions> ChatOptionsFor(const std::string& reasoning_effort) {
  ChatOptions options;
  options.thinking = reasoning_effort != "none";
  if (!options.thinking) return options;
  Result<ThinkingEffort> effort = ParseThinkingEffort(reasoning_effort);
  if (!effort) return FailWith(std::move(effort), "--reasoning-effort");
  options.effort = *effort;
  return options;
}

}  // namespace deltafin
