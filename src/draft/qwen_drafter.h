// QwenDrafter: proposes how a small language model with a tokenizer of its own would go on with the text.
//
// For raw completion: it knows text, not the frame of a chat, so it says nothing where the history holds special
// tokens. A proposal encodes the text for the small model, reads what has changed since the last one, lets it go on
// greedily and carries its words back (draft/token_bridge.h). It stops where the small model is unsure, which is also
// what is believed of the tokens. While a prompt is read, the small model reads it too, as far as it is settled; a text
// that it has not read otherwise is read in parts, and nothing is proposed meanwhile. Beyond its capacity it says
// nothing. Specification of drafting, part C.2. Thread rule: engine thread only. Errors: kCorrupt (a number that is
// none).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "draft/drafter.h"
#include "draft/qwen_model.h"
#include "draft/session_observer.h"
#include "draft/token_bridge.h"

namespace deltafin {

class QwenDrafter final : public Drafter, public SessionObserver {
 public:
  // Ids of the small model in a proposal, at most: its capacity beyond the text.
  static constexpr int64_t kMostOwn = 20;

  // `most`: tokens of a proposal. The bridge's ids fit the model: see CheckVocabulary.
  QwenDrafter(std::unique_ptr<QwenModel> model, std::shared_ptr<const TokenBridge> bridge, int64_t most);

  // kCorrupt when the tokenizer has ids that the model has no rows for.
  static Status CheckVocabulary(const QwenConfig& config, const ByteLevelTokenizer& tokenizer);

  std::string_view name() const override { return "qwen"; }
  bool costs_nothing() const override { return false; }
  int64_t most() const override { return most_; }
  Result<Proposal> Propose(std::span<const TokenId> history, std::span<TokenId> out) override;
  SessionObserver* observer() override { return this; }

  void OnLayer(int32_t, const ConstRows&) override {}
  void OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) override;

 private:
  // What the small model says: ids of its own, how sure it was of each, and whether its text ended.
  struct Words {
    std::string text;
    std::vector<size_t> starts;  // of each id, in the text
    std::vector<float> chances;
    bool ended = false, unsure = false;
  };

  // Reads up to `most` of the ids that it has not read. True: it has read them all.
  bool Read(std::span<const TokenId> own, int64_t most);
  Status Speak(int64_t ids, Words& words);
  std::vector<float> Beliefs(std::span<const TokenId> ids, const Words& words) const;

  std::unique_ptr<QwenModel> model_;
  std::shared_ptr<const TokenBridge> bridge_;
  int64_t most_;
  std::vector<TokenId> read_;  // by the small model
};

}  // namespace deltafin
