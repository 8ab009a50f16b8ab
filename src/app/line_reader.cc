#include "app/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>

namespace deltafin {

// Bytes from stdin, a block at a time.
struct LineReader::Input {
  CancelToken interrupt;
  char block[4096];
  size_t at = 0, end = 0;

  // The next byte, or -1 at the end of input, or -2 when interrupted.
  int Next() {
    while (at == end) {
      if (interrupt.cancelled()) return -2;
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      if (poll(&ready, 1, 50) <= 0) continue;
      const ssize_t n = read(STDIN_FILENO, block, sizeof block);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return -1;
      at = 0;
      end = static_cast<size_t>(n);
    }
    return static_cast<unsigned char>(block[at++]);
  }
};

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;
  Input* input = nullptr;
  bool interrupted = false;

  ~Editor() {
    if (line != nullptr) el_end(line);
    if (history != nullptr) history_end(history);
  }

  static Editor* Of(EditLine* line) {
    void* editor = nullptr;
    el_get(line, EL_CLIENTDATA, &editor);
    return static_cast<Editor*>(editor);
  }

  static char* Prompt(EditLine* line) { return Of(line)->prompt.data(); }

  // One character for libedit, decoded from UTF-8; what is ill-formed comes as U+FFFD.
  static int NextCharacter(EditLine* line, wchar_t* character) {
    Editor* editor = Of(line);
    const int first = editor->input->Next();
    if (first < 0) {
      editor->interrupted = first == -2;
      return first == -2 ? -1 : 0;
    }
    const int more = first < 0x80 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc2 ? 1 : -1;
    uint32_t code = more <= 0 ? static_cast<uint32_t>(first) : static_cast<uint32_t>(first) & (0x3fu >> more);
    bool is_good = more >= 0;
    for (int i = 0; i < more && is_good; ++i) {
      const int byte = editor->input->Next();
      is_good = byte >= 0 && (byte & 0xc0) == 0x80;
      code = (code << 6) | (static_cast<uint32_t>(byte) & 0x3f);
    }
    *character = static_cast<wchar_t>(is_good ? code : 0xfffd);
    return 1;
  }
};

namespace {

constexpr int kRememberedLines = 1000;

// libedit shows and returns characters by the locale: one with UTF-8 is needed, whatever the environment says.
void UseUtf8() {
  if (std::setlocale(LC_CTYPE, "") != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "en_US.UTF-8");
}

}  // namespace

LineReader::LineReader(const std::string& prompt, CancelToken interrupt) : input_(std::make_unique<Input>()) {
  input_->interrupt = interrupt;
  if (isatty(STDIN_FILENO) == 0) return;
  UseUtf8();
  editor_ = std::make_unique<Editor>();
  editor_->prompt = prompt;
  editor_->input = input_.get();
  editor_->history = history_init();
  editor_->line = el_init("deltafin", stdin, stdout, stderr);
  HistEvent event;
  history(editor_->history, &event, H_SETSIZE, kRememberedLines);
  el_set(editor_->line, EL_CLIENTDATA, static_cast<void*>(editor_.get()));
  el_set(editor_->line, EL_PROMPT, Editor::Prompt);
  el_set(editor_->line, EL_GETCFN, Editor::NextCharacter);
  el_set(editor_->line, EL_EDITOR, "emacs");
  el_set(editor_->line, EL_HIST, history, editor_->history);
}

LineReader::~LineReader() = default;

LineReader::Outcome LineReader::ReadPlain(std::string* line) {
  line->clear();
  bool is_too_long = false;
  for (;;) {
    const int byte = input_->Next();
    if (byte == -2) return Outcome::kInterrupted;
    if (byte == '\n' || byte == -1) {
      if (is_too_long) return Outcome::kTooLong;
      return byte == -1 && line->empty() ? Outcome::kEnd : Outcome::kLine;
    }
    if (line->size() < kMaxBytes)
      line->push_back(static_cast<char>(byte));
    else
      is_too_long = true;
  }
}

LineReader::Outcome LineReader::Read(std::string* line) {
  if (editor_ == nullptr) return ReadPlain(line);
  editor_->interrupted = false;
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  if (editor_->interrupted) {
    el_reset(editor_->line);
    return Outcome::kInterrupted;
  }
  if (text == nullptr || count <= 0) return Outcome::kEnd;
  line->assign(text, static_cast<size_t>(count));
  if (!line->empty() && line->back() == '\n') line->pop_back();
  if (line->size() > kMaxBytes) return Outcome::kTooLong;
  HistEvent event;
  if (!line->empty()) history(editor_->history, &event, H_ENTER, text);
  return Outcome::kLine;
}

}  // namespace deltafin
