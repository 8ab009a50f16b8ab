// manifest_text.h: how manifests are written and read: JSON that ends with its own checksum, and members that are
// checked one by one.
//
// A ManifestReader keeps the first complaint and answers with harmless values afterwards, so that a parser needs to
// look once. Functions without state; a reader: one thread, and the document outlives it. Errors: kCorrupt (torn, a
// member that is missing or out of range), kUnsupported (a newer version).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deltafin {

// Control characters become question marks.
std::string PlainText(std::string text);

struct ManifestKind {
  std::string_view format;
  uint64_t version = 0;
};

// One line; `json` is an object with members.
std::string ManifestText(const Json& json);
// Checks checksum, format and version.
Result<Json> ParseManifest(std::string_view text, const ManifestKind& kind, const std::string& what);

// Reads members of an object and keeps the first complaint.
class ManifestReader {
 public:
  // `what` names the document and outlives the reader; `where` is the path of the object in it, with its dot.
  ManifestReader(const Json& object, const std::string& what, std::string where);

  uint64_t Number(const char* key, uint64_t least, uint64_t most);
  int64_t Int(const char* key, int64_t least, int64_t most);  // least >= 0
  double Rate(const char* key);
  bool Flag(const char* key);
  std::string Text(const char* key, size_t most);
  std::string FileName(const char* key);
  uint64_t Hex(const char* key);
  // A list of 1 to `most` numbers from 1 to `largest`.
  std::vector<int64_t> Numbers(const char* key, size_t most, int64_t largest);
  // Calls `read` with a reader for every element, of `least` to `most`.
  void List(const char* key, size_t least, size_t most, const std::function<void(ManifestReader&)>& read);

  bool ok() const { return status_.has_value(); }
  Status TakeStatus() { return std::move(status_); }
  const std::string& what() const { return what_; }

 private:
  const Json* Member(const char* key);
  void Complain(const char* key, const std::string& expected, const std::string& got);

  const Json* object_ = nullptr;
  const std::string& what_;
  const std::string where_;
  Status status_;
};

}  // namespace deltafin
