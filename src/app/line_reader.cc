#include "app/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>

namespace deltafin {

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;

  ~Editor() {
    if (line != nullptr) el_end(line);
    if (history != nullptr) history_end(history);
  }
};

namespace {

constexpr int kRememberedLines = 1000;

char* PromptOf(EditLine* line) {
  void* editor = nullptr;
  el_get(line, EL_CLIENTDATA, &editor);
  return static_cast<std::string*>(editor)->data();
}

}  // namespace

LineReader::LineReader(const std::string& prompt) {
  if (isatty(STDIN_FILENO) == 0) return;
  editor_ = std::make_unique<Editor>();
  editor_->prompt = prompt;
  editor_->history = history_init();
  editor_->line = el_init("deltafin", stdin, stdout, stderr);
  HistEvent event;
  history(editor_->history, &event, H_SETSIZE, kRememberedLines);
  el_set(editor_->line, EL_CLIENTDATA, static_cast<void*>(&editor_->prompt));
  el_set(editor_->line, EL_PROMPT, PromptOf);
  el_set(editor_->line, EL_EDITOR, "emacs");
  el_set(editor_->line, EL_HIST, history, editor_->history);
}

LineReader::~LineReader() = default;

LineReader::Outcome LineReader::Read(std::string* line) {
  if (editor_ == nullptr) {
    errno = 0;
    if (std::getline(std::cin, *line)) return Outcome::kLine;
    return errno == EINTR ? Outcome::kInterrupted : Outcome::kEnd;
  }
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  if (text == nullptr || count <= 0) {
    if (count < 0) {
      el_reset(editor_->line);
      return Outcome::kInterrupted;
    }
    return Outcome::kEnd;
  }
  line->assign(text, static_cast<size_t>(count));
  if (!line->empty() && line->back() == '\n') line->pop_back();
  HistEvent event;
  if (!line->empty()) history(editor_->history, &event, H_ENTER, text);
  return Outcome::kLine;
}

}  // namespace deltafin
