#include "simulate/engine_model.h"

#include <algorithm>

namespace deltafin::simulate {
namespace {

constexpr double kBf16Bytes = 2;

// Weights pass through memory once a step and are multiplied with every row; the slower of the two counts.
double MatrixSeconds(const EngineModel& engine, const Machine& machine, double bytes, double weights, double rows,
                     double share) {
  if (share <= 0) return 0;
  const double reading = bytes / (machine.memory_bytes_per_second * share);
  const double multiplying = 2 * weights * rows / (machine.flops_per_second * engine.arithmetic_share);
  return std::max(reading, multiplying);
}

double DenseSeconds(const EngineModel& engine, const Machine& machine, double bytes, double rows) {
  return MatrixSeconds(engine, machine, bytes * engine.dense_form, bytes / kBf16Bytes, rows, engine.dense_share);
}

}  // namespace

EngineModel PublishedEngine() {
  return {.name = "published",
          .drive_share = 0.936,       // set by C6, one drive: 799 s, of them 89 s not reading (published)
          .layer_seconds = 0.00125,   // set by C1
          .row_seconds = 0.0006,      // set by C6: 29 s of attention and other work in 744 passes of 64 rows
          .choice_seconds = 7.96e-5,  // set by C6: 60 s of kernels for 512 * 92 * 16 choices
          .experts_as_they_arrive = false,
          .ahead_layers = 4,  // published
          .named = 0,
          .right = 0.308,  // published: how often the last token's experts are wanted again
          .guesses_while_streaming = true,
          .prompt_rows = 64,     // published
          .prompt_waste = 2.28,  // set by C6: 9.03 TB are 699 experts a layer and pass, 64 rows want 307
          .hit_share = 0};
}

EngineModel OwnEngine(bool packed) {
  // Shares and times: docs/PERFORMANCE.md, k3-slice in memory (dense 142.5 ms for 5.74 GB, experts 27.8 ms for 0.84 GB
  // at 50.3 GB/s; 122 us a layer outside kernels; prompts 0.50 to 0.55 of multiplying) and the drive ladder (97.3
  // to 99.8 %).
  return {.name = packed ? "12-bit dense" : "BF16 dense",
          .drive_share = 0.99,
          .layer_seconds = 122e-6,
          .dense_share = 0.79,
          .expert_share = 0.60,
          .arithmetic_share = 0.53,
          .dense_form = packed ? 0.75 : 1,
          .experts_as_they_arrive = true,
          .ahead_layers = 1,
          .named = 0.6,   // published: the next layer's router on this layer's rows names 59 to 70 %
          .right = 0.96,  // 4 % in vain on k3-slice
          .hit_share = 0};
}

LayerTimes TimesOf(const EngineModel& engine, const Machine& machine, const LayerShape& layer, int64_t rows) {
  const auto count = static_cast<double>(rows);
  LayerTimes times;
  times.before = engine.layer_seconds + engine.row_seconds * (count - 1) +
                 DenseSeconds(engine, machine, layer.router_bytes, count);
  if (engine.dense_share > 0) times.before += layer.state_bytes / machine.memory_bytes_per_second;
  times.shared = DenseSeconds(engine, machine, layer.shared_bytes, count);
  return times;
}

double ExpertSeconds(const EngineModel& engine, const Machine& machine, const ModelShape& shape, double rows) {
  return engine.choice_seconds * rows +
         MatrixSeconds(engine, machine, shape.record_bytes, shape.expert_weights, rows, engine.expert_share);
}

double HeadSeconds(const EngineModel& engine, const Machine& machine, const ModelShape& shape) {
  return DenseSeconds(engine, machine, shape.head_bytes, 1);
}

}  // namespace deltafin::simulate
