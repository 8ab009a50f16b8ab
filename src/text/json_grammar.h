// json_grammar.h: JSON that satisfies a schema, as nodes of a SymbolGrammar.
//
// Members come in the order of the schema's properties, those that are not required may be left out, and nothing that
// is not declared is written, unless the schema declares no properties: what is written is always valid, though not all
// that is valid can be written. One space may follow ':' and ','; there is no other white space. Keywords that cannot
// be enforced are refused. Pure functions. Errors: kUnsupported, naming the place ("#/properties/age: multipleOf").
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/python_json.h"
#include "text/symbol_grammar.h"

namespace deltafin {

// How strings are spelled: in JSON with quotes and escapes, or, as arguments of a K3 call, as they are.
enum class StringForm : uint8_t { kJson, kPlain };

class JsonGrammar {
 public:
  explicit JsonGrammar(SymbolGrammar& grammar) : g_(grammar) {}

  Result<NodeId> Value(const PythonJson& schema);
  NodeId AnyObject();
  NodeId AnyValue();

  // A value as an argument of a call: the name of its JSON type, and its text.
  struct Argument {
    std::string type;
    NodeId value = 0;
  };
  // `root`: what references in `schema` start from.
  Result<std::vector<Argument>> Arguments(const PythonJson& schema, const PythonJson& root);

 private:
  friend struct SchemaReader;
  NodeId AnyString();
  NodeId AnyNumber(bool whole);
  NodeId Comma();
  NodeId Colon();

  SymbolGrammar& g_;
  NodeId any_value_ = -1, any_object_ = -1, any_string_ = -1;
  std::map<std::string, NodeId> references_;
  const PythonJson* root_ = nullptr;
};

// Text of a regular expression (the part of ECMA-262's that is regular), matched as a search: what is not anchored may
// have anything around it. Each character is spelled in `form`. kUnsupported: look-around, back references, classes of
// Unicode properties.
Result<NodeId> PatternNode(SymbolGrammar& grammar, std::string_view pattern, StringForm form);
// One character of text, spelled in `form`.
NodeId AnyCharacter(SymbolGrammar& grammar, StringForm form);

}  // namespace deltafin
