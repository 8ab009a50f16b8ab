// EngineModel: what the simulator knows of an engine: how long its computing takes, how it reads ahead, how it passes
// through prompts. Two of them: the published engine, for the calibration, and this one.
//
// Data and pure functions. The numbers of both engines are set in engine_model.cc; those of the other published machines
// that the calibration describes in published_rig.cc, those of routing in routing.cc. All are listed in docs/PLANNING.md
// with where they come from. Times are seconds of a whole machine's work.
#pragma once

#include <cstdint>
#include <string>

#include "simulate/machine.h"
#include "simulate/model_shape.h"

namespace deltafin::simulate {

struct EngineModel {
  std::string name;
  double drive_share = 1;  // of what a drive could deliver, while reads are queued

  // Computing: fixed times of a layer, of each row beyond the first, of each row in each expert ...
  double layer_seconds = 0, row_seconds = 0, choice_seconds = 0;
  // ... and shares of the machine's limits; 0: the fixed times are all there is.
  double dense_share = 0, expert_share = 0;  // of memory bandwidth
  double arithmetic_share = 0;               // of multiplying and adding
  double dense_form = 1;                     // bytes of a dense weight over BF16's
  bool experts_as_they_arrive = true;        // false: a layer's are computed when all have arrived

  // Reading ahead: layers, and guesses: of experts that a layer will want, the share that is named ...
  int ahead_layers = 0;
  double named = 0;                      // 0: the last token's experts are the guess, each right with `right`
  double right = 0;                      // of the guesses of one row, the share that comes true
  bool guesses_while_streaming = false;  // also where dense weights are read for every step

  // Prompts: rows of a pass (0: all in one), and experts read over experts wanted.
  int64_t prompt_rows = 0;
  double prompt_waste = 1;
  double hit_share =
      0;  // of experts that are found in memory whatever the cache does; for caches that are not simulated
};

// The published engine on the machine it was measured on: 8-bit dense weights resident, prompts in passes of 64 rows,
// four layers of look-ahead.
EngineModel PublishedEngine();
// This engine. `packed`: dense weights in 12 bits.
EngineModel OwnEngine(bool packed);

// Times of a layer in a step of so many rows.
struct LayerTimes {
  double before = 0;  // its router has chosen
  double shared = 0;  // while experts are on their way
};
LayerTimes TimesOf(const EngineModel& engine, const Machine& machine, const LayerShape& layer, int64_t rows);
// One expert on so many rows (a mean, so not a whole number).
double ExpertSeconds(const EngineModel& engine, const Machine& machine, const ModelShape& shape, double rows);
double HeadSeconds(const EngineModel& engine, const Machine& machine, const ModelShape& shape);

}  // namespace deltafin::simulate
