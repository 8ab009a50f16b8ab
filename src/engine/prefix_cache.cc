#include "engine/prefix_cache.h"

#include <algorithm>

namespace deltafin {
namespace {

uint64_t OwnBytes(const SessionCheckpoint& c) {
  return c.state.kda_bytes() + c.tokens.size() * sizeof(TokenId) + c.logits.size() * sizeof(float);
}

}  // namespace

void PrefixCache::Touch(Entry& entry, uint64_t conversation) {
  entry.conversation = conversation;
  entry.used = conversations_[conversation] = ++now_;
}

std::shared_ptr<const SessionCheckpoint> PrefixCache::Match(std::span<const TokenId> tokens, uint64_t conversation) {
  Entry* best = nullptr;
  for (Entry& entry : entries_) {
    const SessionCheckpoint& c = *entry.checkpoint;
    if (best != nullptr && c.position() <= best->checkpoint->position()) continue;
    if (c.tokens.size() == tokens.size() && c.logits.empty()) continue;
    if (c.IsPrefixOf(tokens)) best = &entry;
  }
  if (best == nullptr) return nullptr;
  // What others use too stays theirs: the last one that used it would take it along when it goes.
  best->used = conversations_[conversation] = ++now_;
  conversations_[best->conversation] = now_;
  return best->checkpoint;
}

Result<bool> PrefixCache::Resume(std::span<const TokenId> tokens, uint64_t conversation, Session& session,
                                 std::span<float> logits) {
  const std::vector<TokenId>& held = session.tokens();
  const bool goes_on = held.size() < tokens.size() && std::equal(held.begin(), held.end(), tokens.begin());
  if (!goes_on) session.Reset();
  const auto kept = Match(tokens, conversation);
  const int64_t in_memory = kept == nullptr ? 0 : kept->position();
  const int64_t at_hand = std::max(session.length(), in_memory);
  if (files_ != nullptr && files_->Restore(tokens, at_hand, session, logits, ++now_) && session.length() > at_hand)
    return session.tokens().size() == tokens.size();
  if (in_memory <= session.length()) return false;
  DFIN_TRY_VOID(session.Restore(*kept));
  if (files_ != nullptr) files_->Touch(kept->tokens, now_);
  if (kept->tokens.size() < tokens.size()) return false;
  std::copy(kept->logits.begin(), kept->logits.end(), logits.begin());
  return true;
}

Result<bool> PrefixCache::SaveNext() {
  if (files_ == nullptr) return false;
  Entry* next = nullptr;
  for (Entry& entry : entries_)
    if (!entry.saved && (next == nullptr || entry.used > next->used)) next = &entry;
  if (next == nullptr) return false;
  next->saved = true;
  DFIN_TRY_VOID(files_->Keep(*next->checkpoint, next->used));
  return true;
}

void PrefixCache::Count(const SessionCheckpoint& checkpoint) {
  bytes_ += OwnBytes(checkpoint);
  for (const MlaPage& page : checkpoint.state.mla().pages())
    if (++pages_[page.data()] == 1) bytes_ += checkpoint.state.mla().page_bytes();
}

Status PrefixCache::Keep(const Session& session, uint64_t conversation, std::span<const float> logits) {
  const std::span<const TokenId> tokens = session.tokens();
  if (tokens.empty()) return {};
  for (Entry& entry : entries_) {
    const SessionCheckpoint& c = *entry.checkpoint;
    if (c.tokens.size() != tokens.size() || !c.IsPrefixOf(tokens) || c.logits.size() < logits.size()) continue;
    entry.used = conversations_[conversation] = ++now_;
    return {};
  }
  const uint64_t least = session.state().CurrentKdaBytes().size() + tokens.size_bytes() + logits.size_bytes();
  if (least > budget_) return {};
  // Room first: the copy must not be memory on top of the budget.
  while (bytes_ + least > budget_ && !entries_.empty()) Evict();
  DFIN_TRY(std::shared_ptr<const SessionCheckpoint> checkpoint, session.Checkpoint(logits));
  Count(*checkpoint);
  entries_.push_back({std::move(checkpoint), conversation, 0});
  Touch(entries_.back(), conversation);
  while (bytes_ > budget_) Evict();
  return {};
}

void PrefixCache::Evict() {
  const auto older = [this](const Entry& a, const Entry& b) {
    const uint64_t used_a = conversations_.at(a.conversation), used_b = conversations_.at(b.conversation);
    return used_a != used_b ? used_a < used_b : a.used < b.used;
  };
  const auto victim = std::min_element(entries_.begin(), entries_.end(), older);
  const SessionCheckpoint& c = *victim->checkpoint;
  bytes_ -= OwnBytes(c);
  for (const MlaPage& page : c.state.mla().pages()) {
    const auto counted = pages_.find(page.data());
    if (--counted->second > 0) continue;
    bytes_ -= c.state.mla().page_bytes();
    pages_.erase(counted);
  }
  const uint64_t conversation = victim->conversation;
  entries_.erase(victim);
  ++counters_.evicted;
  const auto same = [&](const Entry& e) { return e.conversation == conversation; };
  if (std::none_of(entries_.begin(), entries_.end(), same)) conversations_.erase(conversation);
}

}  // namespace deltafin
