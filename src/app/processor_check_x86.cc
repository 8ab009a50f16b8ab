// Before anything else of the program runs: whether this processor has what all of it is compiled for (cmake/flags.cmake).
// Compiled for any x86-64 itself, so that its message comes where the rest would end with an illegal instruction.
#include <unistd.h>

namespace {

[[gnu::constructor(101)]] void CheckProcessor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return;
  constexpr char kMessage[] =
      "deltafin: this processor: expected AVX2, FMA and BMI2, got one without: use a processor from 2013 or later, or "
      "give the virtual machine the host's processor type\n";
  if (write(STDERR_FILENO, kMessage, sizeof kMessage - 1) < 0) _exit(4);
  _exit(4);  // kExitResources
}

}  // namespace
