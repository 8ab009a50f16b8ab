// Fuzzes the reader of a session's journal: entries after a right head, with their checksums made right when the first
// byte is odd. What is accepted is a beginning that is accepted again as a whole.
#include <cstring>

#include "checkpoint/integrity.h"
#include "engine/session_journal.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

constexpr uint64_t kModel = 7;

std::string Head() {
  std::string head = "DFINSES1";
  head.append(reinterpret_cast<const char*>(&kModel), sizeof kModel);
  const uint64_t hash = Hash64(head);
  head.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  return head;
}

// Kind, length and payload of every entry stay; the hash behind them is replaced.
void MakeRight(std::string& bytes, size_t at) {
  uint64_t hash = Hash64(std::string_view(bytes).substr(0, at));
  while (bytes.size() - at >= 8) {
    const auto size = LoadUnaligned<uint32_t>(bytes.data() + at + 4);
    if (bytes.size() - at - 8 < uint64_t{size} + 8) return;
    hash = Hash64(std::string_view(bytes).substr(at, 8 + size_t{size}), hash);
    std::memcpy(bytes.data() + at + 8 + size, &hash, sizeof hash);
    at += 16 + size_t{size};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  static_cast<void>(SessionJournal::Parse(std::as_bytes(std::span(input)), kModel));
  if (size == 0) return 0;
  std::string bytes = Head();
  const size_t head = bytes.size();
  bytes += input.substr(1);
  if ((data[0] & 1) != 0) MakeRight(bytes, head);
  const auto content = SessionJournal::Parse(std::as_bytes(std::span(bytes)), kModel);
  Require(content.has_value() && content->good_bytes <= bytes.size());
  for (size_t i = 0; i + 1 < content->turns.size(); ++i) Require(content->turns[i].finished);
  bytes.resize(content->good_bytes);
  const auto again = SessionJournal::Parse(std::as_bytes(std::span(bytes)), kModel);
  Require(again.has_value() && again->good_bytes == bytes.size() && again->turns.size() == content->turns.size());
  return 0;
}
