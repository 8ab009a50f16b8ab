#include "app/setup_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/progress_line.h"
#include "base/json.h"
#include "base/units.h"

namespace deltafin {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kRateWindow = 20 * kSecond;
constexpr int64_t kWaitShown = 10 * kSecond;   // without a byte
constexpr int64_t kFirstPause = 10 * kSecond;  // between two notes about retries
constexpr int64_t kLongestPause = 300 * kSecond;
constexpr size_t kAnyWidth = 1000;

std::string Headline(const SetupReport& r) { return r.of_folder ? r.source : Cat(r.source, ", commit ", r.commit); }
Json CommitOf(const SetupReport& r) { return r.of_folder ? Json() : Json(r.commit); }

}  // namespace

void SetupView::PrintLine(const std::string& line) { terminal_.Write(line + "\n"); }

double SetupView::Rate(int64_t now, uint64_t received) {
  samples_.push_back({now, received});
  while (samples_.size() > 2 && now - samples_.front().first > kRateWindow) samples_.pop_front();
  const double seconds = SecondsBetween(samples_.front().first, now);
  if (seconds <= 0 || received < samples_.front().second) return 0;
  return static_cast<double>(received - samples_.front().second) / seconds;
}

void SetupView::Show(const SetupProgress& p) {
  const std::lock_guard lock(mutex_);
  const int64_t now = clock_.NowNs();
  const bool often = terminal_.stderr_is_terminal() || json_;
  const bool due = last_ == 0 || now - last_ >= (often ? kSecond / 2 : 10 * kSecond);
  if (quiet_ && !json_) return;
  if (!due) return;
  last_ = now;
  if (p.bytes_received != received_ || received_ns_ == 0) {
    received_ns_ = now;
    attempts_ = 0;
    retry_pause_ = 0;
  }
  received_ = p.bytes_received;
  const double rate = Rate(now, p.bytes_received);
  const uint64_t left = p.bytes_total - std::min(p.bytes_total, p.bytes_done);
  if (json_) {
    Json event;
    event["event"] = "progress";
    event["phase"] = p.name.empty() ? p.phase : Cat(p.phase, " ", p.name);
    event["files_done"] = p.files_done;
    event["files_total"] = p.files_total;
    event["bytes_done"] = p.bytes_done;
    event["bytes_total"] = p.bytes_total;
    event["bytes_received"] = p.bytes_received;
    event["bytes_per_second"] = rate;
    event["seconds_left"] = rate > 0 ? Json(static_cast<double>(left) / rate) : Json(nullptr);
    event["retries"] = retries_;
    PrintLine(DumpJson(event));
    return;
  }
  ShowLine(p, now, rate, left);
}

// "" while bytes come, or nothing was tried in vain.
std::string SetupView::WaitText(int64_t now) const {
  if (attempts_ == 0 || now - received_ns_ < kWaitShown) return "";
  return Cat("nothing for ", FormatSeconds(SecondsBetween(received_ns_, now)), ": try ", attempts_ + 1, " of ",
             most_attempts_);
}

void SetupView::ShowLine(const SetupProgress& p, int64_t now, double rate, uint64_t left) {
  std::vector<std::string> parts;
  const std::string wait = WaitText(now);
  if (!wait.empty()) parts.push_back(wait);
  if (wait.empty() && rate > 0)
    parts.insert(parts.end(), {FormatRate(rate), FormatSeconds(static_cast<double>(left) / rate) + " left"});
  if (p.bytes_total > 0) parts.push_back(Cat(FormatBytes(p.bytes_done), "/", FormatBytes(p.bytes_total)));
  if (p.files_total > 0) parts.push_back(Cat(p.files_done, "/", p.files_total, " files"));
  if (retries_ > 0) parts.push_back(Cat(retries_, retries_ == 1 ? " retry" : " retries"));
  const size_t width =
      terminal_.stderr_is_terminal() ? static_cast<size_t>(std::max(2, Terminal::Width() - 2)) : kAnyWidth;
  terminal_.ShowStatus(ProgressLine(parts, p.phase, Printable(p.name), width));
}

void SetupView::Waiting(int attempts, int most) {
  const std::lock_guard lock(mutex_);
  attempts_ = attempts;
  most_attempts_ = most;
}

void SetupView::Note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (json_) PrintLine(DumpJson(Json{{"event", "note"}, {"text", text}}));
  if (json_ || quiet_) return;
  terminal_.EndLine();
  terminal_.WriteNote("deltafin: note: " + Printable(text) + "\n");
}

void SetupView::Retry(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    ++retries_;
    const int64_t now = clock_.NowNs();
    if (last_retry_ != 0 && now - last_retry_ < retry_pause_) return;
    last_retry_ = now;
    retry_pause_ = std::clamp(2 * retry_pause_, kFirstPause, kLongestPause);
  }
  Note(reason + ": trying again");
}

void SetupView::Plan(const SetupReport& r) {
  if (json_) {
    Json event{{"event", "plan"}, {"source", r.source}, {"commit", CommitOf(r)}, {"bytes_total", r.bytes_total}};
    event["files"] = Json::array();
    for (const HubFile& f : r.files)
      event["files"].push_back({{"path", f.path}, {"size", f.size}, {"sha256", f.sha256}});
    event["space"] = Json::array();
    for (const SetupSpace& s : r.space)
      event["space"].push_back({{"folder", s.folder}, {"needed", s.needed}, {"free", s.free_bytes}});
    PrintLine(DumpJson(event));
    return;
  }
  terminal_.EndLine();
  std::string text;
  for (const HubFile& f : r.files) text += Cat(f.path, "  ", FormatBytes(f.size), "\n");
  terminal_.Write(Printable(text));
  text = Cat(Headline(r), ": ", r.files.size(), " files, ", FormatBytes(r.bytes_total), "\n");
  for (const SetupSpace& s : r.space)
    text += Cat(s.folder, ": ", FormatBytes(s.needed), " needed, ", FormatBytes(s.free_bytes), " free\n");
  terminal_.WriteNote(Printable(text) + "nothing was written (--dry-run)\n");
}

void SetupView::Done(const SetupReport& r, const SetupOptions& o) {
  const double seconds = SecondsBetween(begin_, clock_.NowNs());
  if (json_) {
    Json event{{"event", "done"},
               {"source", r.source},
               {"commit", CommitOf(r)},
               {"folder", o.to},
               {"files", r.files.size()},
               {"files_fetched", r.files_fetched},
               {"files_there", r.files_there},
               {"files_moved", r.files_moved},
               {"files_not_read", r.files_unread},
               {"bytes_total", r.bytes_total},
               {"bytes_received", r.bytes_received},
               {"seconds", seconds},
               {"retries", retries_}};
    if (r.pack) event["packed"] = {{"folders", r.pack->folders}, {"experts", r.pack->records}};
    PrintLine(DumpJson(event));
    return;
  }
  if (quiet_) return;
  terminal_.EndLine();
  const std::string compared = r.of_folder ? "compared with its source" : "with the listed checksum";
  std::string text = Cat(Headline(r), "\n", r.files.size(), " files, ", FormatBytes(r.bytes_total),
                         r.files_moved > 0 ? ", the others " : ", each ", compared, ": ", r.files_fetched,
                         r.of_folder ? " copied (" : " fetched (", FormatBytes(r.bytes_received), " in ",
                         FormatSeconds(seconds), "), ", r.files_there - r.files_moved, " there before\n");
  if (r.files_unread > 0)
    text += Cat(r.files_unread,
                " of them not read again: verified before, and size and time are the same since "
                "(--verify-again reads them)\n");
  if (r.files_moved > 0)
    text += Cat(r.files_moved,
                " shards gave up their experts to an expert set, which is there: `deltafin verify` reads it\n");
  if (r.pack)
    text += Cat(r.pack->records, " experts in a set over ", r.pack->folders.size(),
                r.pack->folders.size() == 1 ? " folder\n" : " folders\n");
  if (!o.any_model) text += Cat("run it: deltafin chat --model ", o.to, "\n");
  terminal_.WriteNote(Printable(text));
}

void SetupView::Done(Json event, const std::string& text) {
  if (json_) {
    event["event"] = "done";
    event["seconds"] = SecondsBetween(begin_, clock_.NowNs());
    event["retries"] = retries_;
    return PrintLine(DumpJson(event));
  }
  if (quiet_) return;
  terminal_.EndLine();
  terminal_.WriteNote(Printable(text));
}

}  // namespace deltafin
