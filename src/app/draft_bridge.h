// draft_bridge: the tokenizer of a Qwen3 model that drafts (--draft qwen), where one is asked for and of use.
//
// Such a model drafts raw completion only: it knows text, not the frame of a chat. Asked for by name it is refused
// elsewhere; --draft auto goes on without it and says so. Loaded before the engine, so that the memory plan knows its
// size. Thread rule: main thread. Errors: kInvalidArgument, those of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/common_options.h"
#include "base/result.h"
#include "draft/token_bridge.h"

namespace deltafin {

struct DraftBridge {
  std::shared_ptr<const TokenBridge> bridge;  // null: no model drafts that needs one
  uint64_t bytes = 0;                         // resident memory that it takes
  std::string left_out;  // why --draft auto goes on without the model in --draft-model; "": it does not
};

// `tokenizer`: the model's, null where it was not loaded. `raw`: text is completed, no chat.
Result<DraftBridge> LoadDraftBridge(const CommonOptions& options, std::shared_ptr<const Tokenizer> tokenizer, bool raw);

}  // namespace deltafin
