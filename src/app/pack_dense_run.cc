#include "app/pack_dense_run.h"

#include <cstdio>

#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/units.h"

namespace deltafin {
namespace {

// Shows how far the work is; on a terminal in one line, else a line every ten seconds.
class DenseView {
 public:
  DenseView(Terminal& terminal, bool quiet) : terminal_(terminal), quiet_(quiet) {}

  void Show(const PackDenseProgress& p) {
    const int64_t now = clock_.NowNs();
    const int64_t period_ns = terminal_.stderr_is_terminal() ? 500'000'000 : 10'000'000'000;
    if (quiet_ || (last_ != 0 && now - last_ < period_ns)) return;
    if (p.phase == "packing" && start_ == 0) {
      start_ = now;
      bytes_before_ = p.bytes_done;
    }
    last_ = now;
    std::string text = Cat(p.phase, "  ", p.units_done, "/", p.units_total, " layers  ", FormatBytes(p.bytes_done), "/",
                           FormatBytes(p.bytes_total));
    const double seconds = start_ == 0 ? 0 : SecondsBetween(start_, now);
    if (seconds > 0 && p.bytes_done > bytes_before_) {
      const double rate = static_cast<double>(p.bytes_done - bytes_before_) / seconds;
      text += Cat("  ", FormatRate(rate), "  ", FormatSeconds(static_cast<double>(p.bytes_total - p.bytes_done) / rate),
                  " left");
    }
    terminal_.ShowStatus(text);
  }
  double seconds() const { return SecondsBetween(begin_, clock_.NowNs()); }

 private:
  Terminal& terminal_;
  const bool quiet_;
  const SteadyClock clock_;
  const int64_t begin_ = clock_.NowNs();
  int64_t start_ = 0, last_ = 0;
  uint64_t bytes_before_ = 0;
};

std::string ReportText(const PackDenseReport& r, double seconds) {
  char share[32], rate[32];
  std::snprintf(share, sizeof share, "%.2f",
                100.0 * static_cast<double>(r.bytes) / static_cast<double>(r.source_bytes));
  std::snprintf(rate, sizeof rate, "%.1f",
                r.elements == 0 ? 0 : 1e6 * static_cast<double>(r.escapes) / static_cast<double>(r.elements));
  std::string text = Cat("dense weights of ", r.units - 1, " layers and the head: ", FormatBytes(r.source_bytes),
                         " in ", FormatBytes(r.bytes), " (", share, " %), every bit kept; ",
                         FormatBytes(r.bytes_written), " written in ", FormatSeconds(seconds), "\n");
  text += Cat("escapes: ", r.escapes, " of ", r.elements, " elements in 12 bits (", rate, " of a million)\n");
  text += Cat(r.whole_rows, " of ", r.rows, " rows stay BF16\n");
  if (r.units_kept > 0) text += Cat(r.units_kept, " of ", r.units, " files were there already, unchanged\n");
  return text + Cat("use it with --dense ", Printable(r.folder), "\n");
}

}  // namespace

Result<int> RunPackDense(PackDenseOptions options, bool quiet) {
  Terminal terminal;
  const Interrupt interrupt;
  DenseView view(terminal, quiet);
  options.on_note = [&](const std::string& note) {
    terminal.EndLine();
    terminal.WriteNote("deltafin: note: " + Printable(note) + "\n");
  };
  Result<PackDenseReport> report = PackDense(
      options, [&](const PackDenseProgress& p) { view.Show(p); }, interrupt.token());
  terminal.EndLine();
  if (!report) {
    if (report.error().code() == ErrorCode::kCancelled && !quiet)
      terminal.WriteNote("stopped; give the same command again to go on where it stopped\n");
    return Failure(std::move(report.error()));
  }
  if (!quiet) terminal.WriteNote(ReportText(*report, view.seconds()));
  return kExitDone;
}

}  // namespace deltafin
