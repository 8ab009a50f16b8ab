// Fuzzes the reader of expert traces. Whatever is accepted keeps to its shape.
#include "cache/expert_trace.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

void CheckSteps(const ExpertTrace& trace) {
  size_t batches = 0;
  for (const ExpertTrace::Step& step : trace.steps()) {
    Require(step.rows > 0 && step.begin == batches && step.end > step.begin);
    batches = step.end;
  }
  Require(batches == trace.batches().size());
}

void CheckBatches(const ExpertTrace& trace) {
  size_t uses = 0;
  for (const ExpertTrace::Batch& batch : trace.batches()) {
    Require(batch.layer >= 0 && batch.layer < trace.shape().layers && batch.begin == uses && batch.end > uses);
    uses = batch.end;
    for (const int32_t rows : trace.RowsOf(batch)) Require(rows > 0 && rows <= ExpertTraceShape::kMostRows);
    int32_t before = -1;
    for (const int32_t expert : trace.ExpertsOf(batch)) {
      Require(expert > before && expert < trace.shape().experts);
      before = expert;
    }
  }
  Require(uses == trace.uses());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string& start : {std::string(), std::string("deltafin-expert-trace 1 layers 9 experts 96 per-token 8 "
                                                              "record-bytes 1000\n")}) {
    const Result<ExpertTrace> trace = ExpertTrace::Parse(start + std::string(text), "fuzz");
    if (!trace) continue;
    CheckSteps(*trace);
    CheckBatches(*trace);
  }
  return 0;
}
