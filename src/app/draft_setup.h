// draft_setup.h: --draft, --draft-model and --max-drafts: what they ask of the engine, and the drafting of a
// conversation.
//
// Drafting changes how many steps an answer takes, never a token of it. Thread rule: main thread. Errors:
// kInvalidArgument naming the option.
#pragma once

#include <memory>
#include <vector>

#include "app/common_options.h"
#include "engine/drafting.h"
#include "text/tokenizer.h"

namespace deltafin {

// `generates`: the command drafts; the others refuse what would do nothing for them.
Status SetDraftOptions(const CommonOptions& options, bool generates, EngineOptions* engine_options);

// Ids that end an answer. `tokenizer` null: only ids are spoken.
std::vector<TokenId> StopTokens(const Tokenizer* tokenizer, const ModelSpec& spec);

// As the engine's plan has room for; null: without. `bridge`: see app/draft_bridge.h.
Result<std::unique_ptr<Drafting>> MakeDrafting(Engine& engine, const Tokenizer* tokenizer,
                                               std::shared_ptr<const TokenBridge> bridge);

}  // namespace deltafin
