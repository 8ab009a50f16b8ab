#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace deltafin {

std::string StreamDecoder::Append(std::string_view bytes) {
  pending_.append(bytes);
  std::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Utf8Step step = ScanUtf8(rest);
    if (step.scan == Utf8Scan::kTruncated) break;
    if (step.scan == Utf8Scan::kComplete) {
      text.append(rest.substr(0, step.length));
    } else {
      AppendUtf8(kReplacementCharacter, &text);
    }
    rest.remove_prefix(step.length);
  }
  pending_ = std::string(rest);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = ToValidUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace deltafin
