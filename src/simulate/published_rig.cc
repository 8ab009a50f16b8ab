#include "simulate/published_rig.h"

#include <algorithm>

namespace deltafin::simulate {
namespace {

constexpr double kExperts = 82432;
constexpr int64_t kPromptRows = 6, kTokens = 128;
// Rates and times of the first byte: a whole record alone takes 1.50, 2.6, 2.6 and 3.3 ms.
constexpr Drive kDrives[] = {{.bytes_per_second = 13.6e9, .first_byte_seconds = 0.00021},
                             {.bytes_per_second = 7.1e9, .first_byte_seconds = 0.00013},
                             {.bytes_per_second = 7.1e9, .first_byte_seconds = 0.00013},
                             {.bytes_per_second = 5.4e9, .first_byte_seconds = 0.00022}};
// Of all experts, the most used first, on each drive.
constexpr double kHeld[] = {1, 50265 / kExperts, 53468 / kExperts, 26684 / kExperts};

}  // namespace

Machine ReferenceRig(size_t count) {
  Machine machine;
  machine.drives.assign(std::begin(kDrives), std::begin(kDrives) + static_cast<std::ptrdiff_t>(count));
  machine.ram_bytes = 128'000'000'000;
  machine.memory_bytes_per_second = 300e9;
  machine.flops_per_second = 2e12;
  return machine;
}

Layout PublishedLayout(size_t count) {
  if (count <= 2) return {.kind = LayoutKind::kMirrored};
  return {.kind = LayoutKind::kWeighted,
          .held = std::vector<double>(std::begin(kHeld), std::begin(kHeld) + static_cast<std::ptrdiff_t>(count))};
}

Setup PublishedSetup(const ModelShape& shape, size_t count, uint64_t seed) {
  return {.shape = shape,
          .machine = ReferenceRig(count),
          .engine = PublishedEngine(),
          .layout = PublishedLayout(count),
          .seed = seed};
}

DraftHabits PublishedDrafts(double part) {
  // 43 steps of a log of 200 tokens: 1 to 7 and "8 or more" drafts.
  DraftHabits habits{.weights = {0, 2, 10, 4, 5, 0, 3, 1, 18}, .chance = 0};
  habits.chance = ChanceFor(habits, part);
  return habits;
}

PublishedRun RunPublished(const Setup& setup, const DraftHabits& drafts) {
  const auto routing = MakeRouting(setup.shape, K3Statistics(), setup.seed);
  Simulation simulation(setup, *routing);
  PublishedRun run;
  run.seconds_first_token = RunPrompt(simulation, setup.engine, kPromptRows, kPromptRows).seconds;
  run.decode = RunDecode(simulation, kTokens - 1, drafts, setup.seed);
  return run;
}

}  // namespace deltafin::simulate
