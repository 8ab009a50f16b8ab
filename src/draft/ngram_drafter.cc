#include "draft/ngram_drafter.h"

#include <algorithm>

namespace deltafin {
namespace {

// What a run of 2, 3, ... tokens is believed before anything was counted: short ones are often found by chance.
constexpr float kFirstBelief[] = {0.3f, 0.5f, 0.6f, 0.7f, 0.75f};

}  // namespace

Result<std::unique_ptr<NgramDrafter>> NgramDrafter::Create(NgramOptions options) {
  DFIN_TRY(NgramIndex index, NgramIndex::Create(options.capacity));
  return std::unique_ptr<NgramDrafter>(new NgramDrafter(std::move(options), std::move(index)));
}

bool NgramDrafter::Ends(TokenId token) const {
  if (options_.first_special > 0 && token >= options_.first_special) return true;
  return std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) != options_.stop_tokens.end();
}

Result<Proposal> NgramDrafter::Propose(std::span<const TokenId> history, std::span<TokenId> out) {
  Proposal proposal;
  if (!index_.Follow(history)) return proposal;
  const NgramIndex::Hit hit = index_.Longest();
  if (hit.length == 0) return proposal;
  proposal.kind = static_cast<int32_t>(hit.length - NgramIndex::kShortest);
  proposal.belief.fill(kFirstBelief[proposal.kind]);
  const auto end = static_cast<int64_t>(history.size());
  const int64_t longest = std::min(static_cast<int64_t>(out.size()), most());
  while (proposal.count < longest) {
    const int64_t from = hit.next + proposal.count;
    const TokenId token = from < end ? history[static_cast<size_t>(from)] : out[static_cast<size_t>(from - end)];
    out[static_cast<size_t>(proposal.count++)] = token;
    if (Ends(token)) break;
  }
  return proposal;
}

}  // namespace deltafin
