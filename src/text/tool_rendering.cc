#include "text/tool_rendering.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/unicode_classes.h"

namespace deltafin {

namespace {

constexpr std::string_view kRequestTools = "# Tools\nHere are the available tools, described in JSONSchema.\n\n";
constexpr std::string_view kAddedTools =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n";

std::string JsonBlock(const PythonJson& json) {
  return Cat("```json\n", DumpPythonJson(json, PythonJsonStyle::kCompactSorted), "\n```");
}

// The messages of one run of tool results, in prompt order, with names where the ids give them.
class ResultRun {
 public:
  // `calls`: of the nearest assistant message before the run.
  explicit ResultRun(std::span<const ToolCall> calls) : calls_(calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].id) positions_.try_emplace(*calls[i].id, i);
    }
  }

  std::vector<PlacedMessage> Order(std::span<const ChatMessage> results) const {
    std::vector<std::pair<size_t, const ChatMessage*>> order;
    for (const ChatMessage& result : results) {
      const auto found = result.tool_call_id ? positions_.find(*result.tool_call_id) : positions_.end();
      if (found == positions_.end()) return Unordered(results);
      order.emplace_back(found->second, &result);
    }
    std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
    std::vector<PlacedMessage> placed;
    for (const auto& [position, result] : order) placed.push_back({result, calls_[position].name, 0});
    return placed;
  }

 private:
  static std::vector<PlacedMessage> Unordered(std::span<const ChatMessage> results) {
    std::vector<PlacedMessage> placed;
    for (const ChatMessage& result : results) placed.push_back({&result, result.tool_name.value_or(result.name), 0});
    return placed;
  }

  std::span<const ToolCall> calls_;
  std::unordered_map<std::string_view, size_t> positions_;
};

struct TypedText {
  std::string_view type;
  std::string text;
};

TypedText ArgumentText(const PythonJson& value) {
  switch (value.kind) {
    case PythonJson::Kind::kString:
      return {"string", value.text};
    case PythonJson::Kind::kInteger:
    case PythonJson::Kind::kFloat:
      return {"number", DumpPythonJson(value, PythonJsonStyle::kSpaced)};
    case PythonJson::Kind::kBool:
      return {"boolean", value.boolean ? "true" : "false"};
    case PythonJson::Kind::kNull:
      return {"null", "null"};
    case PythonJson::Kind::kObject:
      return {"object", DumpPythonJson(value, PythonJsonStyle::kSpaced)};
    case PythonJson::Kind::kArray:
      break;
  }
  return {"array", DumpPythonJson(value, PythonJsonStyle::kSpaced)};
}

Status RenderObjectArguments(const PythonJson& object, SegmentWriter* out) {
  for (const PythonJsonMember& member : object.members) {
    const TypedText value = ArgumentText(member.value);
    out->Open("argument", {{"key", member.key}, {"type", value.type}});
    DFIN_TRY_VOID(out->TextWithImages(value.text));
    out->Close("argument");
  }
  return {};
}

Status RenderArguments(const ToolCall& call, SegmentWriter* out) {
  const PythonJson& given = call.arguments;
  if (given.is_null()) return {};
  if (given.is_object()) return RenderObjectArguments(given, out);
  const auto not_an_object = [&call] {
    return Fail(ErrorCode::kInvalidArgument, "chat: arguments of the call of ", call.name,
                ": expected a JSON object or a string with one in it");
  };
  if (!given.is_string()) return not_an_object();
  if (IsBlank(given.text)) return {};
  const auto parsed = ParsePythonJson(given.text);
  if (parsed) return parsed->is_object() ? RenderObjectArguments(*parsed, out) : not_an_object();
  if (parsed.error().code() != ErrorCode::kCorrupt) return Failure(parsed.error());
  out->Open("json", {{"type", "object"}});
  DFIN_TRY_VOID(out->TextWithImages(given.text));
  out->Close("json");
  return {};
}

}  // namespace

Result<std::vector<PlacedMessage>> PlaceMessages(const std::vector<ChatMessage>& messages) {
  std::vector<PlacedMessage> placed;
  std::span<const ToolCall> calls;
  size_t results_so_far = 0;
  for (size_t i = 0; i < messages.size();) {
    if (messages[i].role != ChatRole::kTool) {
      if (messages[i].role == ChatRole::kAssistant) {
        calls = messages[i].tool_calls;
        results_so_far = 0;
      }
      placed.push_back({&messages[i++], "", 0});
      continue;
    }
    size_t end = i;
    while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
    for (PlacedMessage& result : ResultRun(calls).Order(std::span(messages).subspan(i, end - i))) {
      if (result.tool_name.empty() && results_so_far < calls.size()) result.tool_name = calls[results_so_far].name;
      if (result.tool_name.empty())
        return Fail(ErrorCode::kInvalidArgument, "chat: tool message ", results_so_far + 1,
                    " after the last assistant message: expected the name of a tool or a call that it answers");
      result.tool_index = ++results_so_far;
      placed.push_back(std::move(result));
    }
    i = end;
  }
  return placed;
}

std::string RequestToolsBody(const PythonJson& tools) { return std::string(kRequestTools) + JsonBlock(tools); }
std::string AddedToolsBody(const PythonJson& tools) { return std::string(kAddedTools) + JsonBlock(tools); }

Status RenderToolCalls(const std::vector<ToolCall>& calls, SegmentWriter* out) {
  if (calls.empty()) return {};
  out->Open("tools");
  for (size_t i = 0; i < calls.size(); ++i) {
    out->Open("call", {{"tool", calls[i].name}, {"index", std::to_string(i + 1)}});
    DFIN_TRY_VOID(RenderArguments(calls[i], out));
    out->Close("call");
  }
  out->Close("tools");
  return {};
}

}  // namespace deltafin
