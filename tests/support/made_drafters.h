// made_drafters.h: drafters for tests: one that knows what comes, and others that are wrong, broken or hostile.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "draft/drafter.h"

namespace deltafin::test {

// Proposes what `make` writes into `out`; returns how many.
class MadeDrafter final : public Drafter {
 public:
  using Make = std::function<Result<int64_t>(std::span<const TokenId> history, std::span<TokenId> out)>;

  explicit MadeDrafter(Make make, float belief = 0.9f) : make_(std::move(make)), belief_(belief) {}
  std::string_view name() const override { return "made"; }
  bool costs_nothing() const override { return true; }
  int64_t most() const override { return kMostDrafts; }
  SessionObserver* observer() override { return watcher; }
  Result<Proposal> Propose(std::span<const TokenId> history, std::span<TokenId> out) override {
    Proposal proposal;
    proposal.belief.fill(belief_);
    DFIN_TRY(proposal.count, make_(history, out));
    return proposal;
  }

  SessionObserver* watcher = nullptr;  // not owned

 private:
  Make make_;
  float belief_;
};

// Right about the first `right` tokens of every proposal, wrong about the next; `text` is the whole sequence.
inline MadeDrafter::Make Oracle(std::vector<TokenId> text, int64_t right = kMostDrafts) {
  return [text = std::move(text), right](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
    size_t n = 0;
    for (; n < out.size(); ++n) {
      const size_t at = history.size() + n;
      if (at >= text.size() && static_cast<int64_t>(n) < right) break;
      const TokenId token = at < text.size() ? text[at] : TokenId{0};
      out[n] = static_cast<int64_t>(n) < right ? token : (token + 1) % 97;
    }
    return static_cast<int64_t>(n);
  };
}

}  // namespace deltafin::test
