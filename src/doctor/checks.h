// checks: the checks of doctor, one function a subject. Each reports everything of its kind through `findings`.
//
// Functions without state; none changes anything. What they know in common is the Subject's.
#pragma once

#include "doctor/subject.h"

namespace deltafin {

void CheckProgram(const Subject& subject, Findings& findings);
void CheckProcessor(const Subject& subject, Findings& findings);
void CheckMemory(const Subject& subject, Findings& findings);
void CheckLimits(const Subject& subject, Findings& findings);
void CheckKernel(const Subject& subject, Findings& findings);
void CheckDrives(const Subject& subject, Findings& findings);
// Without a model: whether Kimi K3 would fit.
void CheckFitness(const Subject& subject, Findings& findings);
void CheckPermissions(const Subject& subject, Findings& findings);
void CheckModel(const Subject& subject, Findings& findings);
void CheckTokenizer(const Subject& subject, Findings& findings);
void CheckExperts(const Subject& subject, Findings& findings);
void CheckDense(const Subject& subject, Findings& findings);
void CheckState(const Subject& subject, Findings& findings);
// Whether a run would start, and with which memory plan.
void CheckStart(const Subject& subject, Findings& findings);
void CheckExpertSamples(const Subject& subject, Findings& findings);
void CheckDenseSamples(const Subject& subject, Findings& findings);
void CheckShardSamples(const Subject& subject, Findings& findings);
// The arithmetic, against answers and scores that another implementation computed.
void CheckArithmetic(const Subject& subject, Findings& findings);

}  // namespace deltafin
