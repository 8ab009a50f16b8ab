#include "checkpoint/manifest_text.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/safetensors.h"

namespace deltafin {
namespace {

constexpr std::string_view kChecksumKey = ",\"checksum\":\"";
constexpr std::string_view kTextEnd = "\"}\n";

// The text without its checksum; kCorrupt when the checksum is not that of the text.
Result<std::string_view> CheckChecksum(std::string_view text, const std::string& what) {
  const size_t tail = kChecksumKey.size() + 16 + kTextEnd.size();
  const size_t body = text.size() < tail ? 0 : text.size() - tail;
  if (body > 0) {
    const std::string expected = Cat(kChecksumKey, ToHex(Hash64(text.substr(0, body))), kTextEnd);
    if (text.substr(body) == expected) return text.substr(0, body);
  }
  return Fail(ErrorCode::kCorrupt, what, ": expected a manifest that ends with its own checksum, got ",
              body > 0 ? "another checksum or none" : "too few bytes", ": the file is torn or damaged");
}

}  // namespace

std::string PlainText(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string ManifestText(const Json& json) {
  std::string text = DumpJson(json);
  text.pop_back();  // the closing brace
  return text + Cat(kChecksumKey, ToHex(Hash64(text)), kTextEnd);
}

Result<Json> ParseManifest(std::string_view text, const ManifestKind& kind, const std::string& what) {
  DFIN_TRY_VOID(CheckChecksum(text, what));
  DFIN_TRY(Json json, ParseJson(text, what));
  ManifestReader in(json, what, "");
  const std::string format = in.Text("format", 64);
  const uint64_t version = in.Number("version", 1, UINT64_MAX);
  DFIN_TRY_VOID(in.TakeStatus());
  if (format != kind.format)
    return Fail(ErrorCode::kCorrupt, what, ": format: expected '", kind.format, "', got '", format, "'");
  if (version > kind.version)
    return Fail(ErrorCode::kUnsupported, what, ": version: expected ", kind.version, ", got ", version,
                ": written by a newer deltafin; use that one");
  return json;
}

ManifestReader::ManifestReader(const Json& object, const std::string& what, std::string where)
    : what_(what), where_(std::move(where)) {
  if (object.is_object())
    object_ = &object;
  else
    Complain("", "an object", "another type");
}

uint64_t ManifestReader::Number(const char* key, uint64_t least, uint64_t most) {
  const Json* value = Member(key);
  if (value != nullptr && value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number >= least && number <= most) return number;
    Complain(key, Cat("a number from ", least, " to ", most), Cat(number));
  } else if (value != nullptr) {
    Complain(key, "a whole number that is not negative", "something else");
  }
  return least;
}

int64_t ManifestReader::Int(const char* key, int64_t least, int64_t most) {
  return static_cast<int64_t>(Number(key, static_cast<uint64_t>(least), static_cast<uint64_t>(most)));
}

double ManifestReader::Rate(const char* key) {
  const Json* value = Member(key);
  if (value == nullptr) return 0;
  const double rate = value->is_number() ? value->get<double>() : -1;
  if (rate >= 0 && rate < 1e18) return rate;
  Complain(key, "a rate of at least 0", "something else");
  return 0;
}

bool ManifestReader::Flag(const char* key) {
  const Json* value = Member(key);
  if (value != nullptr && !value->is_boolean()) Complain(key, "true or false", "something else");
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string ManifestReader::Text(const char* key, size_t most) {
  const Json* value = Member(key);
  if (value == nullptr) return "";
  if (!value->is_string() || value->get_ref<const std::string&>().size() > most) {
    Complain(key, Cat("a text of at most ", most, " bytes"), "something else");
    return "";
  }
  return PlainText(value->get<std::string>());
}

std::string ManifestReader::FileName(const char* key) {
  std::string name = Text(key, 255);
  if (ok() && !IsPlainFileName(name)) Complain(key, "the name of a file in the same folder", "something else");
  return name;
}

uint64_t ManifestReader::Hex(const char* key) {
  const std::optional<uint64_t> value = FromHex(Text(key, 16));
  if (ok() && !value) Complain(key, "16 hexadecimal digits", "something else");
  return value.value_or(0);
}

std::vector<int64_t> ManifestReader::Numbers(const char* key, size_t most, int64_t largest) {
  std::vector<int64_t> numbers;
  const Json* value = Member(key);
  if (value == nullptr) return numbers;
  bool good = value->is_array() && !value->empty() && value->size() <= most;
  for (size_t i = 0; good && i < value->size(); ++i) {
    const Json& number = (*value)[i];
    good = number.is_number_unsigned() && number.get<uint64_t>() >= 1 &&
           number.get<uint64_t>() <= static_cast<uint64_t>(largest);
    if (good) numbers.push_back(number.get<int64_t>());
  }
  if (!good) Complain(key, Cat("1 to ", most, " numbers from 1 to ", largest), "something else");
  return numbers;
}

void ManifestReader::List(const char* key, size_t least, size_t most,
                          const std::function<void(ManifestReader&)>& read) {
  const Json* value = Member(key);
  if (value == nullptr) return;
  if (!value->is_array() || value->size() < least || value->size() > most)
    return Complain(key, Cat("a list of ", least, " to ", most), "something else");
  for (size_t i = 0; ok() && i < value->size(); ++i) {
    ManifestReader element((*value)[i], what_, Cat(where_, key, "[", i, "]."));
    if (element.ok()) read(element);
    if (ok() && !element.ok()) status_ = std::move(element.status_);
  }
}

const Json* ManifestReader::Member(const char* key) {
  if (!ok()) return nullptr;
  const auto it = object_->find(key);
  if (it != object_->end()) return &*it;
  Complain(key, "this member", "nothing");
  return nullptr;
}

void ManifestReader::Complain(const char* key, const std::string& expected, const std::string& got) {
  if (ok()) status_ = Fail(ErrorCode::kCorrupt, what_, ": ", where_, key, ": expected ", expected, ", got ", got);
}

}  // namespace deltafin
