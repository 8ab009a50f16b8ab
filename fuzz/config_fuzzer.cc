// Fuzzes config.json: whatever is accepted has sizes that can be multiplied.
#include <cstdlib>

#include "spec/memory_math.h"
#include "spec/model_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltafin;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(ModelSpec::ArchitectureName(text));
  const Result<ModelSpec> spec = ModelSpec::FromConfigText(text, "fuzz");
  if (!spec) return 0;
  constexpr uint64_t kLimit = uint64_t{1} << 62;
  if (DenseWeightBytes(*spec) > kLimit || ExpertWeightBytes(*spec) > kLimit) std::abort();
  if (spec->num_kda_layers + spec->num_mla_layers != static_cast<int64_t>(spec->layers.size())) std::abort();
  return 0;
}
