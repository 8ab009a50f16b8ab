#include "simulate/simulation.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace deltafin::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Units of dense weights that are there or being read, where they do not stay.
constexpr int kDenseBuffers = 2;
// Guesses that may be on their way take slots of at most so many layers.
constexpr int64_t kGuessedLayers = 2;

}  // namespace

Totals Totals::operator-(const Totals& b) const {
  return {.steps = steps - b.steps,
          .seconds = seconds - b.seconds,
          .expert_wait = expert_wait - b.expert_wait,
          .dense_wait = dense_wait - b.dense_wait,
          .dense_compute = dense_compute - b.dense_compute,
          .expert_compute = expert_compute - b.expert_compute,
          .wanted = wanted - b.wanted,
          .found = found - b.found,
          .read = read - b.read,
          .read_ahead = read_ahead - b.read_ahead,
          .in_vain = in_vain - b.in_vain,
          .expert_bytes = expert_bytes - b.expert_bytes,
          .dense_bytes = dense_bytes - b.dense_bytes};
}

Simulation::Simulation(const Setup& setup, Routing& routing)
    : setup_(setup),
      routing_(routing),
      random_(MixSeed(setup.seed, "simulation")),
      bank_(setup.machine, setup.engine.drive_share),
      placement_(setup.layout, setup.machine),
      slots_(setup.shape, setup.slots, setup.policy),
      guesses_(setup.shape.layers.size()) {
  const size_t keys = setup_.shape.layers.size() * static_cast<size_t>(setup_.shape.experts);
  in_batch_.resize(keys);
  pieces_.resize(keys);
  abandoned_.resize(keys);
  for (const double bytes : setup_.shape.unit_bytes()) unit_bytes_.push_back(bytes * setup_.engine.dense_form);
  dense_there_.assign(unit_bytes_.size(), 1);
  const std::vector<size_t> order = setup_.shape.units_by_size();
  for (size_t i = setup_.resident_units; i < order.size(); ++i) {
    streamed_.push_back(order[i]);
    dense_there_[order[i]] = 0;
  }
  std::sort(streamed_.begin(), streamed_.end());
  ReadDenseAhead();
}

void Simulation::Warm() {
  std::vector<std::pair<double, int64_t>> order;
  for (size_t l = 0; l < setup_.shape.layers.size(); ++l) {
    if (!setup_.shape.layers[l].has_experts) continue;
    const auto layer = static_cast<int32_t>(l);
    for (int32_t e = 0; e < setup_.shape.experts; ++e) order.emplace_back(routing_.Rank(layer, e), Key(layer, e));
  }
  std::sort(order.begin(), order.end());
  for (const auto& [rank, key] : order)
    if (!slots_.Warm(key)) return;
}

void Simulation::Step(int64_t rows, double factor, bool guessing) {
  guessing_ = guessing;
  const double start = bank_.now();
  routing_.Next(rows, factor, &wanted_);
  spans_.clear();
  for (int32_t l = 0; l < std::min<int32_t>(setup_.engine.ahead_layers, static_cast<int32_t>(wanted_.size())); ++l)
    Guess(l, rows);
  for (size_t l = 0; l < wanted_.size(); ++l) Layer(static_cast<int32_t>(l), rows);
  WaitForDense(unit_bytes_.size() - 1);
  Compute(HeadSeconds(setup_.engine, setup_.machine, setup_.shape), &totals_.dense_compute);
  if (dense_buffers_ > 0 && std::find(streamed_.begin(), streamed_.end(), unit_bytes_.size() - 1) != streamed_.end()) {
    dense_there_.back() = 0;
    --dense_buffers_;
    ReadDenseAhead();
  }
  ++totals_.steps;
  totals_.seconds += bank_.now() - start;
}

void Simulation::Layer(int32_t layer, int64_t rows) {
  const auto l = static_cast<size_t>(layer);
  const LayerTimes times = TimesOf(setup_.engine, setup_.machine, setup_.shape.layers[l], rows);
  LayerSpan span{.layer = layer, .begin = bank_.now()};
  const double waits = totals_.expert_wait + totals_.dense_wait;
  WaitForDense(l);
  Compute(times.before, &totals_.dense_compute);
  span.routed = bank_.now();
  const bool has_batch = !wanted_[l].empty();
  if (has_batch) BeginBatch(layer, rows);
  const size_t ahead = l + static_cast<size_t>(setup_.engine.ahead_layers);
  if (setup_.engine.ahead_layers > 0 && ahead < wanted_.size()) Guess(static_cast<int32_t>(ahead), rows);
  Compute(times.shared, &totals_.dense_compute);
  span.shared_done = bank_.now();
  if (has_batch) FinishBatch();
  if (!streamed_.empty() && std::binary_search(streamed_.begin(), streamed_.end(), l)) {
    dense_there_[l] = 0;
    --dense_buffers_;
    ReadDenseAhead();
  }
  span.end = bank_.now();
  span.wait = totals_.expert_wait + totals_.dense_wait - waits;
  spans_.push_back(span);
}

// --- the clock ---

void Simulation::OnArrival(int64_t tag) {
  if (tag < 0) {
    dense_there_[static_cast<size_t>(-tag - 1)] = 1;
    return;
  }
  const auto key = static_cast<size_t>(tag);
  if (--pieces_[key] > 0) return;
  slots_.Arrived(tag);
  if (abandoned_[key] != 0) {
    abandoned_[key] = 0;
    slots_.Forget(tag);
    return;
  }
  if (in_batch_[key] == 0) return;
  batch_.ready.push_back(tag);
  --batch_.on_the_way;
}

void Simulation::Compute(double seconds, double* sum) {
  const double end = bank_.now() + seconds;
  int64_t tag = 0;
  while (bank_.Next(end, &tag)) OnArrival(tag);
  *sum += seconds;
}

void Simulation::WaitForOne() {
  const double start = bank_.now();
  int64_t tag = 0;
  DFIN_CHECK(bank_.Next(kNever, &tag), "somebody waits for a read that was never made");
  (tag < 0 ? totals_.dense_wait : totals_.expert_wait) += bank_.now() - start;
  OnArrival(tag);
}

// --- dense weights ---

void Simulation::WaitForDense(size_t unit) {
  while (dense_there_[unit] == 0) WaitForOne();
}

void Simulation::ReadDenseAhead() {
  const auto most = std::min<size_t>(kDenseBuffers, streamed_.size());
  while (static_cast<size_t>(dense_buffers_) < most) {
    const size_t unit = streamed_[next_streamed_];
    next_streamed_ = (next_streamed_ + 1) % streamed_.size();
    ++dense_buffers_;
    totals_.dense_bytes += unit_bytes_[unit];
    // One folder holds them, on the drive that is fastest.
    bank_.Submit(setup_.machine.fastest(), {.tag = -static_cast<int64_t>(unit) - 1, .bytes = unit_bytes_[unit]}, false);
  }
}

// --- experts ---

int32_t Simulation::RowsOf(size_t i) const {
  const int64_t choices = batch_.rows * setup_.shape.experts_per_token;
  const auto wanted = static_cast<int64_t>(batch_.wanted);
  return static_cast<int32_t>(std::max<int64_t>(1, choices / wanted + (static_cast<int64_t>(i) < choices % wanted)));
}

void Simulation::ReadExpert(int64_t key, bool ahead) {
  const auto layer = static_cast<int32_t>(key / setup_.shape.experts);
  const double rank = routing_.Rank(layer, static_cast<int32_t>(key % setup_.shape.experts));
  placement_.Pieces(key, rank, setup_.shape.record_bytes, ahead, bank_, &cut_);
  pieces_[static_cast<size_t>(key)] = static_cast<uint8_t>(cut_.size());
  for (const Placement::Piece& piece : cut_) bank_.Submit(piece.drive, {.tag = key, .bytes = piece.bytes}, ahead);
  ++totals_.read;
  if (ahead) ++totals_.read_ahead;
  totals_.expert_bytes += setup_.shape.record_bytes;
}

void Simulation::BeginBatch(int32_t layer, int64_t rows) {
  const std::vector<int32_t>& experts = wanted_[static_cast<size_t>(layer)];
  batch_ = {.layer = layer, .rows = rows, .misses = {}, .ready = {}, .wanted = experts.size()};
  slots_.Begin(layer, rows * setup_.shape.experts_per_token);
  totals_.wanted += experts.size();
  for (size_t i = 0; i < experts.size(); ++i) {
    const int64_t key = Key(layer, experts[i]);
    in_batch_[static_cast<size_t>(key)] = 1;
    const ExpertSlots::State state = slots_.state(key);
    if (state == ExpertSlots::State::kAbsent && setup_.engine.hit_share > 0 && Uniform() < setup_.engine.hit_share) {
      ++totals_.found;
      ++batch_.computed;  // costs no reading; its computing is in the fixed times
      in_batch_[static_cast<size_t>(key)] = 0;
      continue;
    }
    if (state == ExpertSlots::State::kAbsent) {
      batch_.misses.push_back(key);
      continue;
    }
    slots_.Use(key, RowsOf(i));
    if (state == ExpertSlots::State::kThere) {
      ++totals_.found;
      batch_.ready.push_back(key);
    } else {
      bank_.Promote(key);
      abandoned_[static_cast<size_t>(key)] = 0;
      ++batch_.on_the_way;
    }
  }
  DropGuesses(layer);
  // Those with the fewest copies first: the others can go where there is room.
  const auto rank = [&](int64_t key) { return routing_.Rank(layer, static_cast<int32_t>(key % setup_.shape.experts)); };
  if (setup_.layout.kind == LayoutKind::kWeighted)
    std::sort(batch_.misses.begin(), batch_.misses.end(), [&](int64_t a, int64_t b) { return rank(a) > rank(b); });
  AskForMisses();
}

// As many as may be on their way; the engine keeps a step from washing out its cache.
void Simulation::AskForMisses() {
  const auto transit = static_cast<size_t>(setup_.shape.experts_per_token);
  while (batch_.next_miss < batch_.misses.size()) {
    const size_t held = batch_.on_the_way + batch_.ready.size();
    if (!slots_.Insert(batch_.misses[batch_.next_miss], RowsOf(batch_.next_miss),
                       held < transit || batch_.ready.empty()))
      return;
    ++batch_.on_the_way;
    ReadExpert(batch_.misses[batch_.next_miss++], false);
  }
}

void Simulation::FinishBatch() {
  if (!setup_.engine.experts_as_they_arrive)
    while (batch_.on_the_way > 0) WaitForOne();
  while (batch_.computed < batch_.wanted) {
    while (batch_.ready.empty()) {
      AskForMisses();
      WaitForOne();
    }
    FinishOne();
  }
  for (const int64_t key : batch_.misses) in_batch_[static_cast<size_t>(key)] = 0;
}

void Simulation::FinishOne() {
  const int64_t key = batch_.ready.front();
  const double rows =
      static_cast<double>(batch_.rows * setup_.shape.experts_per_token) / static_cast<double>(batch_.wanted);
  Compute(ExpertSeconds(setup_.engine, setup_.machine, setup_.shape, rows), &totals_.expert_compute);
  batch_.ready.pop_front();
  ++batch_.computed;
  in_batch_[static_cast<size_t>(key)] = 0;
  slots_.Release(key);
  AskForMisses();
}

// --- guesses ---

void Simulation::DropGuesses(int32_t layer) {
  for (const int64_t key : guesses_[static_cast<size_t>(layer)]) {
    --guesses_on_way_;
    if (in_batch_[static_cast<size_t>(key)] != 0) continue;
    if (slots_.state(key) == ExpertSlots::State::kOnTheWay && bank_.Drop(key, pieces_[static_cast<size_t>(key)])) {
      slots_.Forget(key);
      --totals_.read;
      --totals_.read_ahead;
      totals_.expert_bytes -= setup_.shape.record_bytes;
      continue;
    }
    ++totals_.in_vain;
    if (setup_.slots > 0) continue;
    if (slots_.state(key) == ExpertSlots::State::kThere)
      slots_.Forget(key);
    else
      abandoned_[static_cast<size_t>(key)] = 1;
  }
  guesses_[static_cast<size_t>(layer)].clear();
}

void Simulation::GuessExpert(int32_t layer, int32_t expert) {
  const int64_t key = Key(layer, expert);
  const int64_t per_token = setup_.shape.experts_per_token;
  const int64_t most = std::min(kGuessedLayers * per_token, (setup_.slots - per_token) / 2);
  if (setup_.slots > 0 && guesses_on_way_ >= most) return;
  if (slots_.state(key) != ExpertSlots::State::kAbsent || !slots_.Insert(key, 0, true)) return;
  ++guesses_on_way_;
  guesses_[static_cast<size_t>(layer)].push_back(key);
  ReadExpert(key, true);
}

// Guesses come true as often as EngineModel says; which, is drawn.
void Simulation::Guess(int32_t layer, int64_t rows) {
  const std::vector<int32_t>& wanted = wanted_[static_cast<size_t>(layer)];
  if (wanted.empty() || !guessing_ || (!streamed_.empty() && !setup_.engine.guesses_while_streaming)) return;
  const auto any = [&] {
    const auto experts = static_cast<double>(setup_.shape.experts);
    return static_cast<int32_t>(std::min(experts - 1, Uniform() * experts));
  };
  const EngineModel& engine = setup_.engine;
  if (engine.named > 0) {
    for (const int32_t expert : wanted) {
      if (Uniform() < engine.named) GuessExpert(layer, expert);
      if (Uniform() < engine.named * (1 - engine.right) / engine.right) GuessExpert(layer, any());
    }
    return;
  }
  // The last token's experts. Of n rows any one makes a guess come true.
  double wrong = 1;
  for (int64_t r = 0; r < rows && wrong > 1e-9; ++r) wrong *= 1 - engine.right;
  for (int64_t i = 0; i < setup_.shape.experts_per_token; ++i)
    GuessExpert(
        layer, Uniform() < wrong ? any() : wanted[static_cast<size_t>(Uniform() * static_cast<double>(wanted.size()))]);
}

}  // namespace deltafin::simulate
