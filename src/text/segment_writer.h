// segment_writer.h: the building blocks of a chat prompt, shared by the files that render one.
//
// Keeps the list of segments and hands out image prompts. Private to src/text (chat_encoder.cc, tool_rendering.cc).
// Ownership: owns the segments until Take(). Thread rule: one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_encoder.h"

namespace deltafin {

using TagAttribute = std::pair<std::string_view, std::string_view>;

class SegmentWriter {
 public:
  // `image_prompts` may be nullptr (not given) and must outlive the writer.
  explicit SegmentWriter(const std::vector<std::string>* image_prompts) : image_prompts_(image_prompts) {}

  void Open(std::string_view tag, std::initializer_list<TagAttribute> attributes = {});
  void Close(std::string_view tag);
  void EndMessage();
  // A whole system message whose body is one segment.
  void SystemNote(std::string_view type, std::string_view body);

  void Text(std::string_view text) { Add(text, false); }
  // The same, with each image placeholder in it replaced by the next image prompt, where image prompts were given.
  Status TextWithImages(std::string_view text);
  Status Image();

  // Fails when image prompts are left over.
  Result<std::vector<ChatSegment>> Take();

 private:
  void Add(std::string_view text, bool trusted) {
    if (!text.empty()) segments_.push_back({std::string(text), trusted});
  }

  const std::vector<std::string>* image_prompts_;
  size_t images_used_ = 0;
  std::vector<ChatSegment> segments_;
};

}  // namespace deltafin
