// Fuzzes results of bench run as bench compare reads them: whatever is accepted compares with itself or is refused.
#include "bench/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltafin;
  const auto file = ParseBenchFile(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!file) return 0;
  const auto comparison = CompareResults(*file, *file, "", "");
  if (comparison) (void)ComparisonMarkdown(*comparison);
  return 0;
}
