// Simulation: one engine with one model on one described machine, step by step, at the level of reads and layers.
//
// A step passes through all layers. In each, the time until the router has chosen; then missing experts are read, those
// of later layers on guesses behind them, while what does not depend on experts is computed; then experts, as they
// arrive or when all have. Dense weights that are not resident are read for every step, two units ahead. The clock is
// DriveBank's. Deterministic: the same setup gives the same times. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "simulate/drive_bank.h"
#include "simulate/engine_model.h"
#include "simulate/expert_slots.h"
#include "simulate/model_shape.h"
#include "simulate/placement.h"
#include "simulate/routing.h"
#include "synth/random.h"

namespace deltafin::simulate {

struct Setup {
  ModelShape shape;
  Machine machine;
  EngineModel engine;
  Layout layout;
  int64_t slots = 0;  // of the expert cache; 0: experts are not kept
  CachePolicy policy = CachePolicy::kFrequency;
  size_t resident_units =
      std::numeric_limits<size_t>::max();  // of dense weights, the largest first, that stay in memory
  uint64_t seed = 1;
};

// Sums over steps, in seconds and bytes.
struct Totals {
  int64_t steps = 0;
  double seconds = 0;
  double expert_wait = 0,
         dense_wait = 0;  // nothing to compute; by what arrives next: experts queue behind dense weights
  double dense_compute = 0, expert_compute = 0;
  uint64_t wanted = 0, found = 0;                  // experts; there when the router had chosen
  uint64_t read = 0, read_ahead = 0, in_vain = 0;  // records asked of the drives
  double expert_bytes = 0, dense_bytes = 0;        // asked of the drives
  Totals operator-(const Totals& before) const;
};

// One layer of one step, for pictures.
struct LayerSpan {
  int32_t layer = 0;
  double begin = 0, routed = 0, shared_done = 0, end = 0;
  double wait = 0;
};

class Simulation {
 public:
  // `routing` outlives it.
  Simulation(const Setup& setup, Routing& routing);

  // The most used experts are in memory before the clock starts, where slots are free.
  void Warm();
  // A step of `rows` rows wanting `factor` times the experts that so many want; with or without reading ahead.
  void Step(int64_t rows, double factor = 1, bool guessing = true);

  const Totals& totals() const { return totals_; }
  const DriveBank& drives() const { return bank_; }
  const std::vector<LayerSpan>& last_step() const { return spans_; }

 private:
  struct Batch {
    int32_t layer = 0;
    int64_t rows = 0;
    std::vector<int64_t> misses;
    std::deque<int64_t> ready;
    size_t next_miss = 0;  // of misses, the first that was not asked for
    size_t on_the_way = 0, computed = 0, wanted = 0;
  };

  int64_t Key(int32_t layer, int32_t expert) const { return layer * setup_.shape.experts + expert; }
  int32_t RowsOf(size_t i) const;
  void OnArrival(int64_t tag);
  void Compute(double seconds, double* sum);
  void WaitForOne();  // the next arrival, whatever it is
  void WaitForDense(size_t unit);
  void ReadDenseAhead();
  void ReadExpert(int64_t key, bool ahead);
  void BeginBatch(int32_t layer, int64_t rows);
  void AskForMisses();
  void FinishBatch();
  void FinishOne();
  void DropGuesses(int32_t layer);
  void Guess(int32_t layer, int64_t rows);
  void GuessExpert(int32_t layer, int32_t expert);
  void Layer(int32_t layer, int64_t rows);
  double Uniform() { return static_cast<double>(random_.Next() >> 11) * 0x1p-53; }

  const Setup setup_;
  Routing& routing_;
  Random random_;
  DriveBank bank_;
  Placement placement_;
  ExpertSlots slots_;
  StepExperts wanted_;
  Batch batch_;
  std::vector<uint8_t> in_batch_;              // [keys]
  std::vector<uint8_t> pieces_;                // [keys] on their way
  std::vector<uint8_t> abandoned_;             // [keys] guessed in vain and still on their way, where nothing is kept
  std::vector<std::vector<int64_t>> guesses_;  // [layers] keys asked for ahead and not yet wanted
  int64_t guesses_on_way_ = 0;
  bool guessing_ = true;
  std::vector<size_t> streamed_;       // units whose dense weights are read for every step; the last unit is the head
  std::vector<double> unit_bytes_;     // [units] of dense weights as stored
  std::vector<uint8_t> dense_there_;   // [units]
  size_t next_streamed_ = 0;           // index into streamed_, of the next that is asked for
  int dense_buffers_ = 0;              // streamed units there or on their way
  std::vector<Placement::Piece> cut_;  // scratch
  Totals totals_;
  std::vector<LayerSpan> spans_;
};

}  // namespace deltafin::simulate
