// check_args.h: the shape checks of every operation, shared by the backends.
//
// A wrong shape is a programmer error (DFIN_CHECK aborts with the condition); whatever a file or a user can get wrong
// has been refused before a backend is called. Row counts may be zero: such a call does nothing. Thread rule: pure
// functions. Source of the shapes: op_args.h.
#pragma once

#include "backend/op_args.h"

namespace deltafin {

void CheckArgs(const EmbedArgs& args);
void CheckArgs(const RmsNormArgs& args);
void CheckArgs(const LinearArgs& args);
void CheckArgs(const LinearGroupArgs& args);
void CheckArgs(const ShortConvArgs& args);
void CheckArgs(const KdaArgs& args);
void CheckArgs(const GatedHeadNormArgs& args);
void CheckArgs(const MlaAttendArgs& args);
void CheckArgs(const SigmoidGateArgs& args);
void CheckArgs(const MixResidualsArgs& args);
void CheckArgs(const RouterArgs& args);
void CheckArgs(const SituGluArgs& args);
void CheckArgs(const ExpertMlpArgs& args);
void CheckArgs(const CombineExpertsArgs& args);
void CheckArgs(const AddExpertArgs& args);
void CheckArgs(const StoreArgs& args);
void CheckArgs(const CopyArgs& args);
void CheckArgs(const AddArgs& args);

// Taps of a ShortConv kernel: its last dimension.
inline int64_t ConvTaps(const TensorView& kernel) { return kernel.shape[kernel.shape.rank() - 1]; }

}  // namespace deltafin
