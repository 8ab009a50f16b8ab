// Fuzzes the reader of a download's journal: as it comes, and as lines behind a right first one, with their checksums
// made right when the first byte is odd. What is accepted is a beginning that is accepted again as a whole.
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "require.h"
#include "setup/setup_journal.h"

using namespace deltafin;
using fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  static_cast<void>(SetupJournal::Parse(input, "input"));
  if (size == 0) return 0;
  const std::string header = "{}";
  const std::string first = "deltafin-setup 1 " + header;
  std::string text = Cat(first, " ", ToHex(Hash64(first)), "\n");
  const bool right = (data[0] & 1) != 0;
  std::string_view rest = input.substr(1);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    text += line;
    if (right) text += Cat(" ", ToHex(Hash64(line, Hash64(header, 2))));
    text += '\n';
  }
  const auto contents = SetupJournal::Parse(text, "made");
  Require(contents.has_value() && contents->good_bytes <= text.size());
  const auto again = SetupJournal::Parse(std::string_view(text).substr(0, contents->good_bytes), "again");
  Require(again.has_value() && again->entries == contents->entries && again->good_bytes == contents->good_bytes);
  return 0;
}
