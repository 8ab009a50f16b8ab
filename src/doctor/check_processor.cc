// Instruction sets, and how much of the processor is ours.
#include "doctor/checks.h"

namespace deltafin {

void CheckProcessor(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  const std::vector<std::string> sets = host.InstructionSets();
  if (sets.empty()) {
    findings.Fault(
        "cpu.no-avx2", "this processor has none of AVX2 with FMA, AVX-512 or NEON (or the virtual machine hides them)",
        "the arithmetic is written for them; --device reference works and is very slow",
        ByAdvice("use a processor from 2013 or later, or give the virtual machine the host's processor type"));
  } else {
    std::string others;
    for (size_t i = 1; i < sets.size(); ++i) others += (i == 1 ? "; also usable: " : ", ") + sets[i];
    findings.Ok("cpu.isa", sets[0] + " will be used" + others);
  }
  const int all = host.PhysicalProcessors(), ours = host.UsableThreads();
  if (all >= 4 && ours * 4 <= all)
    findings.Warning("cpu.few-cores", Cat(ours, " threads of ", all, " processors"),
                     "affinity or a control group keeps the other processors from this program",
                     ByAdvice("lift the limit: taskset -p $$ shows the affinity, cpu.max in /sys/fs/cgroup the quota"));
  else
    findings.Ok("cpu.cores", Cat(ours, ours == 1 ? " thread" : " threads", " of ", all, " processors"));
}

}  // namespace deltafin
