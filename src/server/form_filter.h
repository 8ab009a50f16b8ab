// FormFilter: the form of an answer (text/answer_form.h) as the engine's token filter.
//
// One for each choice; the form itself is shared. Tells the feed when the length limit, not the model, ended the form.
// Thread rule: engine thread.
#pragma once

#include <memory>

#include "engine/token_filter.h"
#include "server/answer_feed.h"
#include "text/answer_form.h"

namespace deltafin {

class FormFilter final : public TokenFilter {
 public:
  // `feed` outlives the filter.
  FormFilter(std::shared_ptr<const AnswerForm> form, AnswerFeed& feed) : walk_(std::move(form)), feed_(feed) {}

  Status Mask(std::span<float> logits, int64_t remaining) override {
    DFIN_TRY_VOID(walk_.Mask(logits, remaining));
    if (walk_.shortened()) feed_.NoteShortened();
    return {};
  }
  void Accept(TokenId token) override { walk_.Accept(token); }

 private:
  AnswerFormWalk walk_;
  AnswerFeed& feed_;
};

}  // namespace deltafin
