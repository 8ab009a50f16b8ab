// SymbolGrammar: which sequences of symbols are well formed; a symbol is a byte or one of a chat's four markers.
//
// A context-free grammar as a graph of nodes, which JSON of a schema, text of a pattern and a whole answer are built
// from. It says nothing of tokens: symbol_walk.h goes through it symbol by symbol, answer_form.h token by token.
// Nodes are never removed. Thread rule: constant after Finish(). Errors: kUnsupported, when a form has no end.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

using Symbol = uint16_t;  // 0 to 255: a byte
constexpr Symbol kOpenSymbol = 256, kCloseSymbol = 257, kSepSymbol = 258, kEndSymbol = 259;
constexpr size_t kSymbolCount = 260;
using SymbolSet = std::bitset<kSymbolCount>;

using NodeId = int32_t;

// Numbers from `least` to `most` without an exponent.
struct NumberRange {
  double least = -1e15, most = 1e15;  // within these
  bool least_excluded = false, most_excluded = false;
  bool whole = false;

  bool Contains(double value) const;
  // How many characters at least must follow `text` until it is a number of the range; nothing: none can.
  std::optional<int64_t> Missing(std::string_view text) const;
};

struct GrammarNode {
  enum class Kind : uint8_t { kLiteral, kSet, kSequence, kChoice, kRepeat, kNumber };
  Kind kind = Kind::kSequence;
  std::vector<Symbol> literal = {};
  SymbolSet set = {};
  std::vector<NodeId> children = {};  // kRepeat: one
  int64_t fewest = 0, most = -1;      // kRepeat; -1: any number
  NumberRange range = {};
};

class SymbolGrammar {
 public:
  static constexpr int64_t kEndless = int64_t{1} << 40;

  NodeId Literal(std::string_view bytes);
  NodeId Marker(Symbol symbol);
  NodeId Set(const SymbolSet& set);
  NodeId Sequence(std::vector<NodeId> children);
  NodeId Choice(std::vector<NodeId> children);
  NodeId Optional(NodeId child) { return Repeat(child, 0, 1); }
  NodeId Repeat(NodeId child, int64_t fewest, int64_t most = -1);
  NodeId Number(const NumberRange& range);
  // A node to be referred to before it is known; Define() says what it is.
  NodeId Reserve() { return Sequence({}); }
  void Define(NodeId reserved, NodeId node) { nodes_[static_cast<size_t>(reserved)].children = {node}; }

  // Works out how short each node can be. Call once, after the last node.
  Status Finish(NodeId root);

  const GrammarNode& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  // Fewest symbols of what matches the node.
  int64_t shortest(NodeId id) const { return shortest_[static_cast<size_t>(id)]; }
  NodeId root() const { return root_; }
  size_t size() const { return nodes_.size(); }

 private:
  NodeId Add(GrammarNode node);
  int64_t ShortestOf(const GrammarNode& node) const;

  std::vector<GrammarNode> nodes_;
  std::vector<int64_t> shortest_;
  NodeId root_ = 0;
};

}  // namespace deltafin
