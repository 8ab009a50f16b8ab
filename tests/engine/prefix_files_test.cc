// Beginnings of conversations that outlive a process: found again, bit-identical, bounded, and never half.
#include "engine/prefix_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<TokenId>;

class KeptPrefixes : public testing::Test {
 protected:
  KeptPrefixes()
      : engine_({.model = test::MicroFolder(), .context = 1024}),
        logger_([this](const std::string& text) { warnings_.push_back(text); }) {}
  void SetUp() override { ASSERT_TRUE(engine_.ok()); }

  Tokens Random(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    Tokens tokens(static_cast<size_t>(count));
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(engine_->spec().vocab_size));
    return tokens;
  }
  Session New() { return std::move(*engine_->NewSession()); }
  Result<PrefixFiles> TryOpen(uint64_t budget = 100 << 20) {
    const Session like = New();
    return PrefixFiles::Open(folder_.path() + "/p", {engine_->checkpoint().fingerprint(), engine_->backend_name()},
                             like, budget, logger_);
  }
  PrefixFiles Open(uint64_t budget = 100 << 20) {
    Result<PrefixFiles> files = TryOpen(budget);
    EXPECT_TRUE(files) << files.error().message();
    return std::move(*files);
  }
  GenerationResult Ask(PrefixCache& cache, const Tokens& prompt, int64_t max_new) {
    Session session = New();
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = max_new;
    request.prefix_cache = &cache;
    Result<GenerationResult> result = Generate(*engine_, session, engine_.monitor(), request);
    EXPECT_TRUE(result) << result.error().message();
    return result ? std::move(*result) : GenerationResult{};
  }
  // A process that reads the prompt, answers and keeps all of it.
  Tokens Before(const Tokens& prompt, int64_t max_new) {
    PrefixFiles files = Open();
    PrefixCache cache(100 << 20);
    cache.UseFiles(&files);
    Tokens history = prompt;
    const GenerationResult answer = Ask(cache, prompt, max_new);
    history.insert(history.end(), answer.tokens.begin(), answer.tokens.end());
    for (int i = 0; i < 100; ++i) {
      const Result<bool> saved = cache.SaveNext();
      EXPECT_TRUE(saved) << saved.error().message();
      if (!saved || !*saved) break;
    }
    return history;
  }
  std::vector<fs::path> Files(const std::string& extension) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/p"))
      if (entry.path().extension() == extension) found.push_back(entry.path());
    return found;
  }

  test::OpenedEngine engine_;
  std::vector<std::string> warnings_;
  Logger logger_;
  test::TempFolder folder_;
};

TEST_F(KeptPrefixes, AConversationGoesOnAfterARestart) {
  Tokens history = Before(Random(300, 1), 20);
  const Tokens message = Random(15, 2);
  history.insert(history.end(), message.begin(), message.end());
  PrefixFiles files = Open();
  EXPECT_GE(files.size(), 2u) << "the prompt's end and the answer's";
  PrefixCache cache(100 << 20);
  cache.UseFiles(&files);
  const GenerationResult kept = Ask(cache, history, 10);
  EXPECT_EQ(kept.prompt_tokens_read, 16) << "the new message and the last token of the answer";
  PrefixCache nothing(0);
  const GenerationResult anew = Ask(nothing, history, 10);
  EXPECT_EQ(anew.prompt_tokens_read, static_cast<int64_t>(history.size()));
  EXPECT_EQ(kept.tokens, anew.tokens);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(KeptPrefixes, TheSamePromptAgainNeedsNoReadingAfterARestart) {
  const Tokens prompt = Random(70, 4);
  const Tokens history = Before(prompt, 12);
  PrefixFiles files = Open();
  PrefixCache cache(100 << 20);
  cache.UseFiles(&files);
  const GenerationResult again = Ask(cache, prompt, 12);
  EXPECT_EQ(again.prompt_tokens_read, 0);
  EXPECT_EQ(Tokens(history.begin() + 70, history.end()), again.tokens);
}

TEST_F(KeptPrefixes, LogitsThatAreDamagedAreNotUsed) {
  const Tokens prompt = Random(70, 4);
  const Tokens history = Before(prompt, 12);
  for (const fs::path& path : Files(".state")) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('x');
  }
  PrefixFiles files = Open();
  PrefixCache cache(100 << 20);
  cache.UseFiles(&files);
  const GenerationResult again = Ask(cache, prompt, 12);
  EXPECT_GT(again.prompt_tokens_read, 0);
  EXPECT_EQ(Tokens(history.begin() + 70, history.end()), again.tokens);
}

TEST_F(KeptPrefixes, MemoryIsTakenWhereItHoldsMore) {
  Tokens history = Before(Random(100, 1), 5);
  PrefixFiles files = Open();
  PrefixCache cache(100 << 20);
  cache.UseFiles(&files);
  const Tokens more = Random(40, 3);
  history.insert(history.end(), more.begin(), more.end());
  Ask(cache, history, 1);
  history.push_back(7);
  EXPECT_EQ(Ask(cache, history, 1).prompt_tokens_read, 1);
}

TEST_F(KeptPrefixes, WhatIsDamagedIsReadAgainAndGone) {
  const Tokens history = Before(Random(200, 1), 8);
  for (const fs::path& path : Files(".latents")) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
    file.put('\x55');
    file.put('\x2a');
  }
  PrefixFiles files = Open();
  PrefixCache cache(100 << 20), nothing(0);
  cache.UseFiles(&files);
  const GenerationResult kept = Ask(cache, history, 6);
  EXPECT_EQ(kept.prompt_tokens_read, static_cast<int64_t>(history.size()));
  EXPECT_EQ(kept.tokens, Ask(nothing, history, 6).tokens);
  EXPECT_FALSE(warnings_.empty());
  EXPECT_EQ(files.size(), 0u);
  EXPECT_TRUE(Files(".state").empty());
}

TEST_F(KeptPrefixes, HalfAndForeignFilesAreRemovedWhenOpened) {
  Before(Random(50, 1), 2);
  const size_t kept = Files(".state").size();
  std::ofstream(folder_.path() + "/p/0123456789abcdef.state") << "half";
  std::ofstream(folder_.path() + "/p/0123456789abcdef.latents") << "of it";
  std::ofstream(folder_.path() + "/p/stray.part") << "left by somebody who died";
  EXPECT_EQ(Open().size(), kept);
  EXPECT_EQ(Files(".state").size(), kept);
  EXPECT_EQ(Files(".latents").size(), kept);
  EXPECT_TRUE(Files(".part").empty());
}

TEST_F(KeptPrefixes, TheBudgetHoldsAndTheLeastRecentlyUsedGoes) {
  Session session = New();
  PrefixFiles files = Open();
  std::vector<Tokens> texts;
  uint64_t one = 0;
  for (uint32_t i = 0; i < 5; ++i) {
    texts.push_back(Random(64, 10 + i));
    session.Reset();
    ASSERT_TRUE(engine_->Feed(session, texts[i], Rows(nullptr, 0, engine_->spec().vocab_size), {}));
    ASSERT_TRUE(files.Keep(**session.Checkpoint(), i + 1));
    if (i == 0) one = files.bytes();
  }
  Tokens longer = texts[0];
  longer.push_back(1);
  ASSERT_TRUE(files.Restore(longer, 0, session, {}, 6));
  EXPECT_EQ(session.tokens(), texts[0]);
  { const PrefixFiles gone = std::move(files); }
  PrefixFiles smaller = Open(2 * one + one / 2);
  EXPECT_EQ(smaller.size(), 2u);
  EXPECT_TRUE(smaller.Has(texts[0])) << "used last";
  EXPECT_TRUE(smaller.Has(texts[4]));
  EXPECT_EQ(Files(".latents").size(), 2u);
  { const PrefixFiles gone = std::move(smaller); }
  PrefixFiles none = Open(one / 2);
  EXPECT_EQ(none.size(), 0u);
  ASSERT_TRUE(none.Keep(**session.Checkpoint(), 7));
  EXPECT_EQ(none.size(), 0u) << "larger than the budget";
}

// What was used last is written first, and what is written after it does not push it out, also after a restart.
TEST_F(KeptPrefixes, WhatWasUsedLastStaysWhenOlderOnesAreWrittenAfterIt) {
  const Tokens text = Random(96, 30);
  uint64_t longest = 0;
  {
    PrefixFiles files = Open();
    Session session = New();
    ASSERT_TRUE(engine_->Feed(session, text, Rows(nullptr, 0, engine_->spec().vocab_size), {}));
    ASSERT_TRUE(files.Keep(**session.Checkpoint(), 1));
    longest = files.bytes();
  }
  fs::remove_all(folder_.path() + "/p");
  const auto save_all = [&](uint64_t budget) {
    PrefixFiles files = Open(budget);
    PrefixCache cache(uint64_t{64} << 20);
    cache.UseFiles(&files);
    Session session = New();
    for (size_t length = 32; length <= text.size(); length += 32) {
      const auto part = std::span(text).subspan(length - 32, 32);
      ASSERT_TRUE(engine_->Feed(session, part, Rows(nullptr, 0, engine_->spec().vocab_size), {}));
      ASSERT_TRUE(cache.Keep(session, 0, {}));
    }
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(cache.SaveNext());
    EXPECT_TRUE(files.Has(text));
  };
  save_all(longest + longest / 2);
  EXPECT_EQ(Files(".state").size(), 1u);
  fs::remove_all(folder_.path() + "/p");
  save_all(10 * longest);
  EXPECT_EQ(Files(".state").size(), 3u);
  const PrefixFiles again = Open(longest + longest / 2);
  EXPECT_EQ(again.size(), 1u);
  EXPECT_TRUE(again.Has(text)) << "times of files tell which one it is";
}

TEST_F(KeptPrefixes, TwoProcessesDoNotShareAFolder) {
  const PrefixFiles files = Open();
  const Result<PrefixFiles> second = TryOpen();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace deltafin
