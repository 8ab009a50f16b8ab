#include "text/segment_writer.h"

namespace deltafin {

namespace {

constexpr std::string_view kImagePlaceholder = "<|kimi_image_placeholder|>";

std::string EscapeAttribute(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

void SegmentWriter::Open(std::string_view tag, std::initializer_list<TagAttribute> attributes) {
  Add("<|open|>", true);
  Text(tag);
  for (const auto& [key, value] : attributes) {
    Text(std::string(" ").append(key));
    Text("=\"");
    Text(EscapeAttribute(value));
    Text("\"");
  }
  Add("<|sep|>", true);
}

void SegmentWriter::Close(std::string_view tag) {
  Add("<|close|>", true);
  Text(tag);
  Add("<|sep|>", true);
}

void SegmentWriter::EndMessage() {
  Close("message");
  Add("<|end_of_msg|>", true);
}

void SegmentWriter::SystemNote(std::string_view type, std::string_view body) {
  Open("message", {{"role", "system"}, {"type", type}});
  Text(body);
  EndMessage();
}

Status SegmentWriter::TextWithImages(std::string_view text) {
  if (image_prompts_ == nullptr) {
    Text(text);
    return {};
  }
  for (size_t at = text.find(kImagePlaceholder); at != std::string_view::npos; at = text.find(kImagePlaceholder)) {
    Text(text.substr(0, at));
    DFIN_TRY_VOID(Image());
    text.remove_prefix(at + kImagePlaceholder.size());
  }
  Text(text);
  return {};
}

Status SegmentWriter::Image() {
  if (image_prompts_ == nullptr) {
    Add(kImagePlaceholder, true);
    return {};
  }
  if (images_used_ == image_prompts_->size())
    return Fail(ErrorCode::kInvalidArgument, "chat: expected one image for each of ", image_prompts_->size(),
                " image prompts, got more images or ", kImagePlaceholder,
                " spellings: remove the spelling from the text");
  Add((*image_prompts_)[images_used_++], true);
  return {};
}

Result<std::vector<ChatSegment>> SegmentWriter::Take() {
  if (image_prompts_ != nullptr && images_used_ != image_prompts_->size())
    return Fail(ErrorCode::kInvalidArgument, "chat: expected ", image_prompts_->size(), " images in the messages, got ",
                images_used_);
  return std::move(segments_);
}

}  // namespace deltafin
