// SymbolWalk: goes through a SymbolGrammar one symbol at a time, as an automaton that is built where it is walked.
//
// A state is a set of stacks of what is still to come; equal stacks and states are one, so a step that was taken once
// is a look-up later. States are numbers, good until Trim() gives back memory. Refers to the grammar, which must
// outlive it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/symbol_grammar.h"

namespace deltafin {

class SymbolWalk {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;

  explicit SymbolWalk(const SymbolGrammar& grammar);

  State start() const { return start_; }
  // kDead: the symbol may not come here.
  State Step(State state, Symbol symbol);
  // Fewest symbols until the end; 0 where the form may end.
  int64_t Missing(State state) const { return states_[static_cast<size_t>(state)].missing; }

  // When much was built, forgets everything but `state`; returns its new number. Others are void then.
  State Trim(State state);
  size_t built() const { return stacks_.size(); }

 private:
  static constexpr int32_t kBottom = -1;
  static constexpr int32_t kUnknown = -2;
  struct Stack {
    NodeId node = 0;
    int64_t progress = 0;  // literal: symbols seen; repeat: times seen; number: which text
    int32_t below = kBottom;
    int64_t missing = 0;
  };
  struct StackKey {
    NodeId node;
    int64_t progress;
    int32_t below;
    bool operator==(const StackKey&) const = default;
  };
  struct StackHash {
    size_t operator()(const StackKey& key) const;
  };
  struct StateData {
    std::vector<int32_t> stacks;  // sorted; on top of each is a literal, a set or a number; kBottom: the end
    std::vector<State> next;      // by symbol; empty until the first step
    int64_t missing = 0;
  };

  int32_t Push(NodeId node, int64_t progress, int32_t below);
  int64_t OwnMissing(const StackKey& key) const;
  void Expand(int32_t stack, std::vector<int32_t>& seen, std::vector<int32_t>& out);
  void Advance(int32_t stack, Symbol symbol, std::vector<int32_t>& seen, std::vector<int32_t>& out);
  void AdvanceNumber(const Stack& top, Symbol symbol, std::vector<int32_t>& seen, std::vector<int32_t>& out);
  State Intern(std::vector<int32_t> stacks);
  int64_t TextId(const std::string& text);

  const SymbolGrammar& grammar_;
  std::vector<Stack> stacks_;
  std::unordered_map<StackKey, int32_t, StackHash> stack_ids_;
  std::vector<StateData> states_;
  std::map<std::vector<int32_t>, State> state_ids_;
  std::vector<std::string> texts_;  // of numbers
  std::unordered_map<std::string, int64_t> text_ids_;
  State start_ = 0;
};

}  // namespace deltafin
