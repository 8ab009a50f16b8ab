#include "app/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "app/exit_code.h"

namespace deltafin {
namespace {

// A signal handler can reach nothing but globals.
std::atomic<CancelSource*> g_source{nullptr};
std::atomic<int> g_signals{0};
std::atomic<int> g_end_after{2};
std::atomic<bool> g_terminate{false};

void OnSignal(int signal_number) {
  if (signal_number == SIGTERM) g_terminate = true;
  if (++g_signals >= g_end_after) {
    // Ends a status text and a panel.
    const char clean[] = "\0337\033[r\0338\r\033[J";
    if (isatty(STDERR_FILENO)) (void)!write(STDERR_FILENO, clean, sizeof clean - 1);
    _exit(kExitInterrupted);
  }
  CancelSource* source = g_source.load();
  if (source != nullptr) source->Cancel();
}

}  // namespace

Interrupt::Interrupt(int end_after) {
  g_source = &source_;
  g_end_after = end_after;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A closed stdout and a file size limit are errors of write(), not deaths.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

Interrupt::~Interrupt() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  g_source = nullptr;
  g_signals = 0;
}

bool Interrupt::terminate() const { return g_terminate; }

void Interrupt::Reset() {
  source_.Reset();
  g_signals = 0;
}

}  // namespace deltafin
