// Drafting across tokenizers: what is carried between them, and how a small model of text drafts with it.
#include "draft/qwen_drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/float_types.h"
#include "base/json.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

const std::string kQwen = test::RepoPath("models/qwen3-nano");

std::shared_ptr<const Tokenizer> Model() {
  static const auto tokenizer = std::make_shared<const Tokenizer>(*Tokenizer::Load(test::RepoPath("models/k3-nano")));
  return tokenizer;
}

std::shared_ptr<const TokenBridge> Bridge() {
  static const auto bridge =
      std::make_shared<const TokenBridge>(Model(), *ByteLevelTokenizer::Load(kQwen + "/tokenizer.json"));
  return bridge;
}

std::string Text(std::span<const TokenId> ids) { return *Model()->DecodeBytes(ids); }

TEST(Bridge, CarriesTextOver) {
  const std::vector<TokenId> history = Model()->EncodeRaw("The capital of France is Paris, \u00E9t\u00E9.");
  const auto own = Bridge()->ToDrafter(history);
  ASSERT_TRUE(own);
  EXPECT_EQ(*own, Bridge()->drafter().Encode(Text(history)));
}

TEST(Bridge, SpecialTokensAndHalvesOfCharactersAreNoText) {
  std::vector<TokenId> history = Model()->EncodeRaw("Hello");
  history.push_back(Model()->base());
  EXPECT_FALSE(Bridge()->ToDrafter(history));
  history.back() = Model()->EncodeRaw("\xE4\xB8").front();
  EXPECT_FALSE(Bridge()->ToDrafter(history)) << "the text ends inside a character";
  EXPECT_FALSE(Bridge()->ToDrafter(std::vector<TokenId>{-1}));
}

TEST(Bridge, WhatFollowsLeavesWhatWasEmittedAsItIs) {
  // Every string, cut at every token: the ids that come back are those of the whole, but for the last.
  const Json cases = *ReadJsonFile(test::RepoPath("tests/data/qwen3-nano/encode.json"));
  int carried = 0;
  for (size_t c = 0; c < cases.size(); c += 3) {
    const auto text = cases[c]["text"].get<std::string>();
    const std::vector<TokenId> whole = Model()->EncodeRaw(text);
    for (size_t at = 1; at < whole.size(); ++at) {
      const std::span<const TokenId> history = std::span(whole).first(at);
      const std::string before = Text(history);
      const std::vector<TokenId> ids = Bridge()->ToModel(history, text.substr(before.size()), /*ended=*/true);
      if (ids.empty()) continue;  // the cut is one that no text of the beginning alone gives
      ASSERT_EQ(ids, std::vector<TokenId>(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end())) << text;
      const std::vector<TokenId> open = Bridge()->ToModel(history, text.substr(before.size()), /*ended=*/false);
      ASSERT_EQ(open, std::vector<TokenId>(ids.begin(), ids.end() - 1)) << text;
      ++carried;
    }
  }
  EXPECT_GT(carried, 1000);
}

TEST(Bridge, WordsThatWouldChangeATokenAreNotCarried) {
  const std::vector<TokenId> whole = Model()->EncodeRaw(" the");
  ASSERT_EQ(whole.size(), 1u);
  const std::vector<TokenId> history = Model()->EncodeRaw(" t");
  EXPECT_TRUE(Bridge()->ToModel(history, "he", true).empty());
  EXPECT_FALSE(Bridge()->ToModel(history, ". Now", true).empty());
}

TEST(Bridge, AnUnusualCutEndsDraftingOnlyWhileItIsNear) {
  std::vector<TokenId> history = Model()->EncodeRaw(" t");
  history.push_back(Model()->EncodeRaw("he").front());  // canonical: " the"
  EXPECT_TRUE(Model()->EncodeRaw(Text(history)) != history);
  const std::vector<TokenId> more = Model()->EncodeRaw(" ship sailed on.");
  history.insert(history.end(), more.begin(), more.end());
  EXPECT_FALSE(Bridge()->ToModel(history, " And then", true).empty());
}

TEST(Bridge, AnIncompleteLastCharacterIsLeftOut) {
  const std::vector<TokenId> history = Model()->EncodeRaw("It is");
  const std::vector<TokenId> ids = Bridge()->ToModel(history, " so\xE4\xB8", true);
  for (const TokenId id : ids) EXPECT_EQ(Text(std::vector<TokenId>{id}).find('\xE4'), std::string::npos);
  EXPECT_TRUE(Bridge()->ToModel(history, "\xE4\xB8", true).empty());
  EXPECT_TRUE(Bridge()->ToModel(history, "\xFF is", true).empty());
  EXPECT_TRUE(Bridge()->ToModel(history, "", true).empty());
}

class Drafts : public testing::Test {
 protected:
  explicit Drafts(int64_t most = 7, int64_t capacity = 1000)
      : config_(*QwenConfig::Parse(*ReadDraftConfig(kQwen + "/config.json"), "config.json")),
        weights_(*DraftTensors::Open({kQwen + "/model.safetensors"}, QwenTensors(config_), "Qwen3")),
        backend_(std::move(*CreateCpuBackend({.device = "cpu", .isa = "auto", .threads = 2}))) {
    DFIN_CHECK(weights_.Load({}).has_value() && backend_->Reserve(QwenModel::Workspace(config_)).has_value(), "memory");
    drafter_ = Make(most, capacity);
  }

  std::unique_ptr<QwenDrafter> Make(int64_t most, int64_t capacity) {
    return std::make_unique<QwenDrafter>(
        std::move(*QwenModel::Create(config_, weights_, *backend_, {.capacity = capacity, .bf16_cache = true})),
        Bridge(), most);
  }

  static std::vector<TokenId> Proposed(QwenDrafter& drafter, const std::vector<TokenId>& history, size_t most = 7) {
    std::vector<TokenId> out(most);
    const Result<Proposal> proposal = drafter.Propose(history, out);
    EXPECT_TRUE(proposal);
    out.resize(static_cast<size_t>(proposal->count));
    for (size_t j = 0; j < out.size(); ++j) {
      EXPECT_GT(proposal->belief[j], 0);
      EXPECT_LE(proposal->belief[j], 1);
    }
    return out;
  }

  const std::vector<TokenId> history_ =
      Model()->EncodeRaw("The capital of Japan is Tokyo. The capital of France is Paris. The capital of Italy is");
  QwenConfig config_;
  DraftTensors weights_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<QwenDrafter> drafter_;
};

TEST_F(Drafts, GoOnWithTheText) {
  const std::vector<TokenId> out = Proposed(*drafter_, history_);
  EXPECT_FALSE(out.empty());
  // The canonical ids of the text that they make, but for the last.
  std::vector<TokenId> all = history_;
  all.insert(all.end(), out.begin(), out.end());
  EXPECT_EQ(Model()->EncodeRaw(Text(all)), all);
}

TEST_F(Drafts, AreTheSameForTheSameTextWhateverCameBetween) {
  const std::vector<TokenId> expected = Proposed(*drafter_, history_);
  EXPECT_EQ(Proposed(*drafter_, history_), expected);
  (void)Proposed(*drafter_, Model()->EncodeRaw("def is_even(n):\n    return"));
  EXPECT_EQ(Proposed(*drafter_, history_), expected);
  std::vector<TokenId> longer = history_;
  longer.insert(longer.end(), expected.begin(), expected.end());
  (void)Proposed(*drafter_, longer);
  EXPECT_EQ(Proposed(*drafter_, history_), expected);
  for (size_t most = 1; most <= expected.size(); ++most)
    EXPECT_EQ(Proposed(*drafter_, history_, most),
              std::vector<TokenId>(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(most)));
}

TEST_F(Drafts, APromptThatWasReadBesideTheModelIsNotReadAgain) {
  const auto reading = Make(7, 1000);
  reading->OnTokens(history_, static_cast<int64_t>(history_.size()), {});
  EXPECT_EQ(Proposed(*reading, history_), Proposed(*drafter_, history_));
}

TEST_F(Drafts, ALongUnreadTextIsReadInPartsAndThenDrafted) {
  std::vector<TokenId> longer;
  for (int i = 0; i < 12; ++i) longer.insert(longer.end(), history_.begin(), history_.end());
  EXPECT_TRUE(Proposed(*drafter_, longer).empty());
  std::vector<TokenId> out;
  for (int i = 0; i < 4 && out.empty(); ++i) out = Proposed(*drafter_, longer);
  EXPECT_FALSE(out.empty());
}

TEST_F(Drafts, APromptThatIsGivenUpIsReadNoFurther) {
  std::vector<TokenId> longer;
  for (int i = 0; i < 12; ++i) longer.insert(longer.end(), history_.begin(), history_.end());
  const auto read = Make(7, 1000), given_up = Make(7, 1000);
  CancelSource cancel;
  read->OnTokens(longer, static_cast<int64_t>(longer.size()), cancel.token());
  EXPECT_FALSE(Proposed(*read, longer).empty());
  cancel.Cancel();
  given_up->OnTokens(longer, static_cast<int64_t>(longer.size()), cancel.token());
  EXPECT_TRUE(Proposed(*given_up, longer).empty()) << "it still has to be read in parts";
}

TEST_F(Drafts, SayNothingOfChatsAndBeyondTheirCapacity) {
  std::vector<TokenId> chat = history_;
  chat.insert(chat.begin(), Model()->base() + 3);
  EXPECT_TRUE(Proposed(*drafter_, chat).empty());
  const auto small = Make(7, 30);
  EXPECT_TRUE(Proposed(*small, history_).empty());
  small->OnTokens(history_, static_cast<int64_t>(history_.size()), {});
  EXPECT_FALSE(Proposed(*small, Model()->EncodeRaw("The ship")).empty());
}

TEST_F(Drafts, AreNoMoreThanWasAskedFor) {
  for (int64_t most = 1; most <= 7; ++most)
    EXPECT_LE(Proposed(*Make(most, 1000), history_).size(), static_cast<size_t>(most));
}

TEST_F(Drafts, AreErrorsWhereNumbersAreNone) {
  (void)Proposed(*drafter_, history_);
  const TensorView norm = weights_.Get("model.norm.weight");
  const_cast<uint16_t*>(norm.bf16())[3] = FloatToBf16(NAN);
  std::vector<TokenId> out(7);
  const Result<Proposal> broken = drafter_->Propose(history_, out);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), ErrorCode::kCorrupt);
}

TEST_F(Drafts, ATokenizerOfAnotherModelIsRefused) {
  EXPECT_TRUE(QwenDrafter::CheckVocabulary(config_, Bridge()->drafter()));
  QwenConfig small = config_;
  small.vocab = 4066;
  EXPECT_FALSE(QwenDrafter::CheckVocabulary(small, Bridge()->drafter()));
}

}  // namespace
}  // namespace deltafin
