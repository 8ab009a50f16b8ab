// SseWriter: server-sent events, and comments that keep a connection alive and tell how far a prompt is.
//
// Thread rule: one thread. A write that fails is remembered; later ones do nothing.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/answer_feed.h"
#include "server/http_server.h"

namespace deltafin {

class SseWriter {
 public:
  SseWriter(const HttpWriter& write, double comment_seconds) : write_(write), comment_seconds_(comment_seconds) {}

  // "data: ..."; `data` has no line break.
  void Data(std::string_view data) { Write(Cat("data: ", data, "\n\n")); }
  // "event: NAME" before it.
  void Event(std::string_view name, std::string_view data) { Write(Cat("event: ", name, "\ndata: ", data, "\n\n")); }
  // At once for the first one; then when something was last written comment_seconds ago.
  void Progress(const AnswerPiece& piece) {
    const int64_t percent = piece.prompt_total == 0 ? 100 : 100 * piece.prompt_done / piece.prompt_total;
    if (percent >= 100) return;
    comment_ = Cat(": prefill ", percent, " %\n\n");
    if (!progress_seen_) Write(comment_);
    progress_seen_ = true;
  }
  void Idle() {
    if (SecondsBetween(last_ns_, clock_.NowNs()) >= comment_seconds_) Write(comment_);
  }
  void EndProgress() { comment_ = kAlive; }
  bool ok() const { return ok_; }

 private:
  static constexpr const char* kAlive = ": keep-alive\n\n";
  void Write(std::string_view text) {
    if (ok_) ok_ = write_(text);
    last_ns_ = clock_.NowNs();
  }

  const HttpWriter& write_;
  const double comment_seconds_;
  const SteadyClock clock_;
  int64_t last_ns_ = clock_.NowNs();
  std::string comment_ = kAlive;
  bool progress_seen_ = false;
  bool ok_ = true;
};

// Of a response that is streamed; no cache and no proxy may hold it back.
inline HttpResponse EventStream(std::function<void(const HttpWriter&)> stream) {
  HttpResponse response{200, "text/event-stream", ""};
  response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  response.stream = std::move(stream);
  return response;
}

}  // namespace deltafin
