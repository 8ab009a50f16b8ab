#include "text/json_grammar.h"

#include <algorithm>
#include <cmath>

#include "text/schema_values.h"

namespace deltafin {

namespace {

constexpr int kMostLevels = 64;
constexpr size_t kMostNodes = 200'000;
constexpr int64_t kMostCount = 100'000;  // of characters or items in bounds

// Keywords that say nothing about what is valid.
constexpr std::string_view kAnnotations[] = {"title", "description", "default",    "examples", "$schema",
                                             "$id",   "$comment",    "deprecated", "readOnly", "writeOnly",
                                             "$defs", "definitions", "$anchor"};
constexpr std::string_view kTypes[] = {"object", "array", "string", "integer", "number", "boolean", "null"};

struct NamedPattern {
  std::string_view format, pattern;
};
// What text of a format looks like; dates with days that every month has.
constexpr NamedPattern kFormats[] = {
    {"date", "^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"},
    {"time", "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"},
    {"date-time",
     "^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
     "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email", "^[a-z0-9_]{1,32}(\\.[a-z0-9_]{1,32}){0,3}@[a-z0-9]{1,32}(\\.[a-z0-9]{1,32}){1,3}$"},
    {"ipv4", "^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$"},
};

}  // namespace

// Reads one schema; the place is kept for messages.
struct SchemaReader {
  JsonGrammar& json;
  SymbolGrammar& g;
  StringForm form = StringForm::kJson;

  static Failure Refuse(const std::string& place, std::string_view what) {
    return Fail(ErrorCode::kUnsupported, "schema: ", place, ": ", what);
  }

  static Status CheckKeywords(const PythonJson& schema, std::initializer_list<std::string_view> known,
                              const std::string& place) {
    for (const PythonJsonMember& member : schema.members) {
      const std::string_view key = member.key;
      if (std::find(std::begin(kAnnotations), std::end(kAnnotations), key) != std::end(kAnnotations)) continue;
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      return Refuse(place, Cat(key.substr(0, 64), " cannot be enforced here"));
    }
    return {};
  }

  Result<NodeId> Value(const PythonJson& schema, const std::string& place, int level) {
    if (level > kMostLevels) return Refuse(place, "nested deeper than 64 levels");
    if (g.size() > kMostNodes) return Refuse(place, "the schema is too large");
    if (schema.is_bool() && schema.boolean) return json.AnyValue();
    if (!schema.is_object()) return Refuse(place, "expected an object");
    if (const PythonJson* reference = schema.Find("$ref")) return Reference(schema, *reference, place, level);
    for (const std::string_view keyword : {"anyOf", "oneOf", "allOf"})
      if (const PythonJson* list = schema.Find(keyword)) return Combined(schema, keyword, *list, place, level);
    if (const PythonJson* values = schema.Find("enum")) return Enum(schema, *values, place);
    if (const PythonJson* value = schema.Find("const")) {
      PythonJson one = PythonJson::Array();
      one.items.push_back(*value);
      return Enum(schema, one, place);
    }
    DFIN_TRY(const std::vector<std::string> types, Types(schema, place));
    if (types.empty()) {
      DFIN_TRY_VOID(CheckKeywords(schema, {"format"}, place));
      return json.AnyValue();
    }
    std::vector<NodeId> choices;
    for (const std::string& type : types) {
      DFIN_TRY(const NodeId node, OfType(schema, type, types.size() > 1, place, level));
      choices.push_back(node);
    }
    return choices.size() == 1 ? choices[0] : g.Choice(std::move(choices));
  }

  // What `type` says, or what the other keywords are about.
  static Result<std::vector<std::string>> Types(const PythonJson& schema, const std::string& place) {
    std::vector<std::string> types;
    const PythonJson* type = schema.Find("type");
    if (type == nullptr) {
      for (const auto& [keyword, meant] :
           std::initializer_list<std::pair<std::string_view, std::string_view>>{{"properties", "object"},
                                                                                {"required", "object"},
                                                                                {"additionalProperties", "object"},
                                                                                {"items", "array"},
                                                                                {"prefixItems", "array"},
                                                                                {"minItems", "array"},
                                                                                {"maxItems", "array"},
                                                                                {"pattern", "string"},
                                                                                {"minLength", "string"},
                                                                                {"maxLength", "string"},
                                                                                {"minimum", "number"},
                                                                                {"maximum", "number"},
                                                                                {"exclusiveMinimum", "number"},
                                                                                {"exclusiveMaximum", "number"}})
        if (schema.Find(keyword) != nullptr && std::find(types.begin(), types.end(), meant) == types.end())
          types.emplace_back(meant);
      if (types.size() > 1) return Refuse(place, "keywords of several types without a type");
      return types;
    }
    std::vector<PythonJson> names = type->is_array() ? type->items : std::vector<PythonJson>{*type};
    for (const PythonJson& name : names) {
      if (!name.is_string() || std::find(std::begin(kTypes), std::end(kTypes), name.text) == std::end(kTypes))
        return Refuse(place, "type: expected a name of a JSON type, or a list of them");
      types.push_back(name.text);
    }
    if (types.empty()) return Refuse(place, "type: expected at least one");
    return types;
  }

  Result<NodeId> OfType(const PythonJson& schema, const std::string& type, bool one_of_several,
                        const std::string& place, int level) {
    // With several types a keyword is about the one that it is made for.
    const auto check = [&](std::initializer_list<std::string_view> known) -> Status {
      if (!one_of_several) return CheckKeywords(schema, known, place);
      return CheckKeywords(schema,
                           {"type", "properties", "required", "additionalProperties", "items", "prefixItems",
                            "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format",
                            "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
                           place);
    };
    if (type == "object") {
      DFIN_TRY_VOID(check({"type", "properties", "required", "additionalProperties"}));
      return ObjectNode(schema, place, level);
    }
    if (type == "array") {
      DFIN_TRY_VOID(check({"type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"}));
      return ArrayNode(schema, place, level);
    }
    if (type == "string") {
      DFIN_TRY_VOID(check({"type", "minLength", "maxLength", "pattern", "format"}));
      return StringNode(schema, place);
    }
    if (type == "integer" || type == "number") {
      DFIN_TRY_VOID(check({"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}));
      return NumberNode(schema, type == "integer", place);
    }
    DFIN_TRY_VOID(check({"type"}));
    if (type == "null") return g.Literal("null");
    return g.Choice({g.Literal("true"), g.Literal("false")});
  }

  Result<const PythonJson*> Resolve(const PythonJson& reference, const std::string& place) const {
    if (!reference.is_string() || reference.text.empty() || reference.text[0] != '#')
      return Refuse(place, "$ref: only references into this schema (\"#/$defs/...\") are followed");
    const PythonJson* at = json.root_;
    std::string_view path = std::string_view(reference.text).substr(1);
    while (!path.empty() && at != nullptr) {
      if (path[0] != '/') return Refuse(place, "$ref: expected a path after #");
      path.remove_prefix(1);
      const size_t end = std::min(path.find('/'), path.size());
      const std::string key = PointerKey(path.substr(0, end));
      at = at->Find(key);
      path.remove_prefix(end);
    }
    if (at == nullptr) return Refuse(place, "$ref: there is nothing at " + reference.text.substr(0, 128));
    return at;
  }

  Result<NodeId> Reference(const PythonJson& schema, const PythonJson& reference, const std::string& place, int level) {
    DFIN_TRY_VOID(CheckKeywords(schema, {"$ref"}, place));
    DFIN_TRY(const PythonJson* target, Resolve(reference, place));
    const std::string key = Cat(form == StringForm::kJson ? "j" : "p", reference.text);
    const auto found = json.references_.find(key);
    if (found != json.references_.end()) return found->second;
    const NodeId reserved = g.Reserve();
    json.references_[key] = reserved;
    DFIN_TRY(const NodeId node, Value(*target, reference.text, level + 1));
    if (node == reserved) return Refuse(place, "$ref: refers to itself only");
    g.Define(reserved, node);
    return reserved;
  }

  Result<NodeId> Combined(const PythonJson& schema, std::string_view keyword, const PythonJson& list,
                          const std::string& place, int level) {
    DFIN_TRY_VOID(CheckKeywords(schema, {keyword, "discriminator"}, place));
    if (!list.is_array() || list.items.empty()) return Refuse(place, Cat(keyword, ": expected a list of schemas"));
    if (keyword == "allOf" && list.items.size() > 1)
      return Refuse(place, "allOf of several schemas cannot be enforced");
    if (keyword == "oneOf") {
      for (size_t i = 0; i < list.items.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (!Disjoint(list.items[i], list.items[j], place))
            return Refuse(place, "oneOf: schemas that may both hold cannot be enforced: use anyOf");
    }
    std::vector<NodeId> choices;
    for (size_t i = 0; i < list.items.size(); ++i) {
      DFIN_TRY(const NodeId node, Value(list.items[i], Cat(place, "/", keyword, "/", i), level + 1));
      choices.push_back(node);
    }
    return choices.size() == 1 ? choices[0] : g.Choice(std::move(choices));
  }

  const PythonJson* Followed(const PythonJson& schema, const std::string& place) const {
    const PythonJson* at = &schema;
    for (int i = 0; i < kMostLevels; ++i) {
      const PythonJson* reference = at->Find("$ref");
      if (reference == nullptr) return at;
      const Result<const PythonJson*> target = Resolve(*reference, place);
      if (!target) return at;
      at = *target;
    }
    return at;
  }

  static std::vector<PythonJson> FixedValues(const PythonJson& schema) {
    if (const PythonJson* value = schema.Find("const")) return {*value};
    const PythonJson* values = schema.Find("enum");
    return values != nullptr && values->is_array() ? values->items : std::vector<PythonJson>{};
  }

  static bool NoneIn(const std::vector<PythonJson>& a, const std::vector<PythonJson>& b) {
    for (const PythonJson& x : a)
      for (const PythonJson& y : b)
        if (CompactJson(x) == CompactJson(y)) return false;
    return !a.empty() && !b.empty();
  }

  // Certain that no value satisfies both: other types, other fixed values, or a member that must differ.
  bool Disjoint(const PythonJson& first, const PythonJson& second, const std::string& place) const {
    const PythonJson &a = *Followed(first, place), &b = *Followed(second, place);
    if (NoneIn(FixedValues(a), FixedValues(b))) return true;
    const Result<std::vector<std::string>> types_a = Types(a, place), types_b = Types(b, place);
    if (types_a && types_b && types_a->size() == 1 && types_b->size() == 1) {
      const std::string &x = (*types_a)[0], &y = (*types_b)[0];
      const bool numbers = (x == "integer" || x == "number") && (y == "integer" || y == "number");
      if (x != y) return !numbers;
    }
    const PythonJson *properties_a = a.Find("properties"), *properties_b = b.Find("properties");
    if (properties_a == nullptr || properties_b == nullptr) return false;
    for (const PythonJsonMember& member : properties_a->members) {
      const PythonJson* other = properties_b->Find(member.key);
      if (other != nullptr && Required(a, member.key) && Required(b, member.key) &&
          NoneIn(FixedValues(member.value), FixedValues(*other)))
        return true;
    }
    return false;
  }

  static bool Required(const PythonJson& schema, std::string_view name) {
    const PythonJson* required = schema.Find("required");
    if (required == nullptr) return false;
    return std::any_of(required->items.begin(), required->items.end(),
                       [&](const PythonJson& item) { return item.text == name; });
  }

  Result<NodeId> Enum(const PythonJson& schema, const PythonJson& values, const std::string& place) {
    DFIN_TRY_VOID(CheckKeywords(schema, {"enum", "const", "type"}, place));
    if (!values.is_array()) return Refuse(place, "enum: expected a list");
    DFIN_TRY(const std::vector<std::string> types, Types(schema, place));
    std::vector<NodeId> choices;
    for (const PythonJson& value : values.items) {
      const auto fits = [&](const std::string& type) { return IsOfType(value, type); };
      if (!types.empty() && std::none_of(types.begin(), types.end(), fits)) continue;
      choices.push_back(g.Literal(form == StringForm::kPlain && value.is_string() ? value.text : CompactJson(value)));
    }
    if (choices.empty()) return Refuse(place, "enum: none of its values is allowed");
    return choices.size() == 1 ? choices[0] : g.Choice(std::move(choices));
  }

  static Result<int64_t> Count(const PythonJson& schema, std::string_view key, int64_t otherwise,
                               const std::string& place) {
    const PythonJson* value = schema.Find(key);
    if (value == nullptr) return otherwise;
    const std::optional<double> number = NumberOf(*value);
    if (!number || *number < 0 || *number != std::floor(*number) || *number > kMostCount)
      return Refuse(place, Cat(key, ": expected a whole number from 0 to ", kMostCount));
    return static_cast<int64_t>(*number);
  }

  Result<NodeId> StringNode(const PythonJson& schema, const std::string& place) {
    const PythonJson *pattern = schema.Find("pattern"), *format = schema.Find("format");
    DFIN_TRY(const int64_t fewest, Count(schema, "minLength", 0, place));
    DFIN_TRY(const int64_t most, Count(schema, "maxLength", -1, place));
    if (most >= 0 && most < fewest) return Refuse(place, "maxLength is below minLength");
    const bool bounded = fewest > 0 || most >= 0;
    if ((pattern != nullptr ? 1 : 0) + (format != nullptr ? 1 : 0) + (bounded ? 1 : 0) > 1)
      return Refuse(place, "pattern, format and length cannot be enforced together");
    NodeId text = 0;
    if (pattern != nullptr || format != nullptr) {
      std::string_view expression;
      if (pattern != nullptr) {
        if (!pattern->is_string()) return Refuse(place, "pattern: expected a string");
        expression = pattern->text;
      } else {
        for (const NamedPattern& known : kFormats)
          if (format->text == known.format) expression = known.pattern;
        if (expression.empty()) return Refuse(place, "format: this one cannot be enforced");
      }
      Result<NodeId> node = PatternNode(g, expression, form);
      if (!node) return Refuse(place, node.error().message());
      text = *node;
    } else {
      if (!bounded && form == StringForm::kJson) return json.AnyString();
      text = g.Repeat(AnyCharacter(g, form), fewest, most);
    }
    if (form == StringForm::kPlain) return text;
    return g.Sequence({g.Literal("\""), text, g.Literal("\"")});
  }

  Result<NodeId> NumberNode(const PythonJson& schema, bool whole, const std::string& place) {
    NumberRange range;
    range.whole = whole;
    bool bounded = false;
    const auto bound = [&](const char* key, bool lower, bool excluded) -> Status {
      const PythonJson* value = schema.Find(key);
      if (value == nullptr) return {};
      const std::optional<double> number = NumberOf(*value);
      if (!number || !(std::abs(*number) <= 1e15))
        return Refuse(place, Cat(key, ": expected a number of at most 15 digits"));
      bounded = true;
      double& edge = lower ? range.least : range.most;
      bool& open = lower ? range.least_excluded : range.most_excluded;
      if (lower ? *number < edge : *number > edge) return {};
      if (*number == edge && open) return {};
      edge = *number;
      open = excluded;
      return {};
    };
    DFIN_TRY_VOID(bound("minimum", true, false));
    DFIN_TRY_VOID(bound("exclusiveMinimum", true, true));
    DFIN_TRY_VOID(bound("maximum", false, false));
    DFIN_TRY_VOID(bound("exclusiveMaximum", false, true));
    if (!bounded) return json.AnyNumber(whole);
    if (!range.Missing("")) return Refuse(place, "no number lies between the bounds");
    return g.Number(range);
  }

  Result<NodeId> ObjectNode(const PythonJson& schema, const std::string& place, int level) {
    const PythonJson *properties = schema.Find("properties"), *required = schema.Find("required");
    const PythonJson* others = schema.Find("additionalProperties");
    if (properties != nullptr && !properties->is_object()) return Refuse(place, "properties: expected an object");
    if (required != nullptr && !required->is_array()) return Refuse(place, "required: expected a list");
    const bool closed = others != nullptr && others->is_bool() && !others->boolean;
    SchemaReader inner{json, g};
    const auto other_value = [&]() -> Result<NodeId> {
      if (others == nullptr || others->is_bool()) return json.AnyValue();
      return inner.Value(*others, place + "/additionalProperties", level + 1);
    };
    struct Property {
      std::string name;
      NodeId value;
      bool required;
    };
    std::vector<Property> list;
    if (properties != nullptr) {
      for (const PythonJsonMember& member : properties->members) {
        DFIN_TRY(const NodeId value, inner.Value(member.value, Cat(place, "/properties/", member.key), level + 1));
        list.push_back({member.key, value, Required(schema, member.key)});
      }
    }
    for (const PythonJson& name : required == nullptr ? std::vector<PythonJson>{} : required->items) {
      if (!name.is_string()) return Refuse(place, "required: expected a list of names");
      const auto same = [&](const Property& property) { return property.name == name.text; };
      if (std::any_of(list.begin(), list.end(), same)) continue;
      if (closed) return Refuse(place, "required names a member that additionalProperties forbids");
      DFIN_TRY(const NodeId value, other_value());
      list.push_back({name.text, value, true});
    }
    if (list.empty()) {
      if (closed) return g.Literal("{}");
      DFIN_TRY(const NodeId value, other_value());
      return Map(value);
    }
    // From the last member back: what may follow when something was written, and when nothing was.
    NodeId rest_after = g.Sequence({}), rest_first = rest_after;
    for (size_t i = list.size(); i-- > 0;) {
      const NodeId member = Member(list[i].name, list[i].value);
      const NodeId after = g.Sequence({json.Comma(), member, rest_after}), first = g.Sequence({member, rest_after});
      rest_first = list[i].required ? first : g.Choice({first, rest_first});
      rest_after = list[i].required ? after : g.Choice({after, rest_after});
    }
    return g.Sequence({g.Literal("{"), rest_first, g.Literal("}")});
  }

  NodeId Member(const std::string& name, NodeId value) {
    return g.Sequence({g.Literal(CompactJson(PythonJson::String(name))), json.Colon(), value});
  }

  NodeId Map(NodeId value) {
    const NodeId member = g.Sequence({json.AnyString(), json.Colon(), value});
    return g.Sequence({g.Literal("{"),
                       g.Optional(g.Sequence({member, g.Repeat(g.Sequence({json.Comma(), member}), 0)})),
                       g.Literal("}")});
  }

  Result<NodeId> ArrayNode(const PythonJson& schema, const std::string& place, int level) {
    const PythonJson* unique = schema.Find("uniqueItems");
    if (unique != nullptr && !(unique->is_bool() && !unique->boolean))
      return Refuse(place, "uniqueItems cannot be enforced");
    DFIN_TRY(int64_t fewest, Count(schema, "minItems", 0, place));
    DFIN_TRY(int64_t most, Count(schema, "maxItems", -1, place));
    if (most >= 0 && most < fewest) return Refuse(place, "maxItems is below minItems");
    const PythonJson *items = schema.Find("items"), *prefix = schema.Find("prefixItems");
    SchemaReader inner{json, g};
    std::vector<NodeId> parts = {g.Literal("[")};
    int64_t placed = 0;
    if (prefix != nullptr) {
      if (!prefix->is_array()) return Refuse(place, "prefixItems: expected a list");
      for (const PythonJson& item : prefix->items) {
        if (most >= 0 && placed == most) break;
        DFIN_TRY(const NodeId node, inner.Value(item, Cat(place, "/prefixItems/", placed), level + 1));
        if (placed++ > 0) parts.push_back(json.Comma());
        parts.push_back(node);
      }
    }
    fewest = std::max<int64_t>(0, fewest - placed);
    if (most >= 0) most -= placed;
    const bool none =
        (items != nullptr && items->is_bool() && !items->boolean) || (prefix != nullptr && items == nullptr);
    if (none && fewest > 0) return Refuse(place, "minItems asks for more items than there may be");
    if (!none && most != 0) {
      NodeId item = json.AnyValue();
      if (items != nullptr && !items->is_bool()) {
        DFIN_TRY(item, inner.Value(*items, place + "/items", level + 1));
      }
      const NodeId more = g.Sequence({json.Comma(), item});
      if (placed > 0) {
        parts.push_back(g.Repeat(more, fewest, most));
      } else {
        const NodeId some =
            g.Sequence({item, g.Repeat(more, std::max<int64_t>(0, fewest - 1), most < 0 ? -1 : most - 1)});
        parts.push_back(fewest == 0 ? g.Optional(some) : some);
      }
    }
    parts.push_back(g.Literal("]"));
    return g.Sequence(std::move(parts));
  }

  // The alternatives of an argument, each with its type.
  Status AddArguments(const PythonJson& schema, const std::string& place, int level,
                      std::vector<JsonGrammar::Argument>* out) {
    if (level > kMostLevels) return Refuse(place, "nested deeper than 64 levels");
    if (const PythonJson* reference = schema.Find("$ref")) {
      DFIN_TRY(const PythonJson* target, Resolve(*reference, place));
      return AddArguments(*target, reference->text, level + 1, out);
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const PythonJson* list = schema.Find(keyword);
      if (list == nullptr || !list->is_array()) continue;
      DFIN_TRY_VOID(CheckKeywords(schema, {keyword, "discriminator"}, place));
      for (const PythonJson& one : list->items) DFIN_TRY_VOID(AddArguments(one, place, level + 1, out));
      return {};
    }
    SchemaReader plain{json, g, StringForm::kPlain};
    const std::vector<PythonJson> fixed = FixedValues(schema);
    for (const PythonJson& value : fixed) {
      PythonJson one = PythonJson::Array();
      one.items.push_back(value);
      DFIN_TRY(const NodeId node, plain.Enum(schema, one, place));
      out->push_back({std::string(TypeOf(value)), node});
    }
    if (!fixed.empty()) return {};
    std::vector<std::string> types;
    if (schema.is_object()) {
      DFIN_TRY(types, Types(schema, place));
    }
    const bool free = types.empty();
    if (free) types = {"string", "number", "boolean", "null", "object", "array"};
    for (const std::string& type : types) {
      const PythonJson bare = PythonJson::Object();
      DFIN_TRY(const NodeId node, plain.OfType(free ? bare : schema, type, types.size() > 1, place, level));
      out->push_back({type == "integer" ? "number" : type, node});
    }
    return {};
  }
};

Result<NodeId> JsonGrammar::Value(const PythonJson& schema) {
  root_ = &schema;
  references_.clear();
  return SchemaReader{*this, g_}.Value(schema, "#", 0);
}

Result<std::vector<JsonGrammar::Argument>> JsonGrammar::Arguments(const PythonJson& schema, const PythonJson& root) {
  if (root_ != &root) references_.clear();
  root_ = &root;
  std::vector<Argument> out;
  DFIN_TRY_VOID((SchemaReader{*this, g_}.AddArguments(schema, "#", 0, &out)));
  return out;
}

NodeId JsonGrammar::Comma() { return g_.Choice({g_.Literal(","), g_.Literal(", ")}); }
NodeId JsonGrammar::Colon() { return g_.Choice({g_.Literal(":"), g_.Literal(": ")}); }

NodeId JsonGrammar::AnyString() {
  if (any_string_ < 0)
    any_string_ = g_.Sequence({g_.Literal("\""), g_.Repeat(AnyCharacter(g_, StringForm::kJson), 0), g_.Literal("\"")});
  return any_string_;
}

NodeId JsonGrammar::AnyNumber(bool whole) {
  SymbolSet digits;
  for (char c = '0'; c <= '9'; ++c) digits.set(static_cast<size_t>(c));
  SymbolSet more = digits;
  more.reset('0');
  const NodeId digit = g_.Set(digits);
  // Short enough for every reader to keep it exactly, or at least finite.
  std::vector<NodeId> parts = {g_.Optional(g_.Literal("-")),
                               g_.Choice({g_.Literal("0"), g_.Sequence({g_.Set(more), g_.Repeat(digit, 0, 14)})})};
  if (!whole) {
    parts.push_back(g_.Optional(g_.Sequence({g_.Literal("."), g_.Repeat(digit, 1, 15)})));
    const NodeId sign = g_.Optional(g_.Choice({g_.Literal("+"), g_.Literal("-")}));
    parts.push_back(
        g_.Optional(g_.Sequence({g_.Choice({g_.Literal("e"), g_.Literal("E")}), sign, g_.Repeat(digit, 1, 2)})));
  }
  return g_.Sequence(std::move(parts));
}

NodeId JsonGrammar::AnyValue() {
  if (any_value_ >= 0) return any_value_;
  any_value_ = g_.Reserve();
  const NodeId member = g_.Sequence({AnyString(), Colon(), any_value_});
  any_object_ =
      g_.Sequence({g_.Literal("{"), g_.Optional(g_.Sequence({member, g_.Repeat(g_.Sequence({Comma(), member}), 0)})),
                   g_.Literal("}")});
  const NodeId array = g_.Sequence(
      {g_.Literal("["), g_.Optional(g_.Sequence({any_value_, g_.Repeat(g_.Sequence({Comma(), any_value_}), 0)})),
       g_.Literal("]")});
  g_.Define(any_value_, g_.Choice({any_object_, array, AnyString(), AnyNumber(false), g_.Literal("true"),
                                   g_.Literal("false"), g_.Literal("null")}));
  return any_value_;
}

NodeId JsonGrammar::AnyObject() {
  AnyValue();
  return any_object_;
}

}  // namespace deltafin
