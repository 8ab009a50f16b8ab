// exit_code.h: what the process says when it ends, and which error says what.
//
// Scripts rely on these numbers; none is ever above 130 except by a signal. Which message goes with it is the Error's
// business. Constants and a pure function.
#pragma once

#include "base/error.h"

namespace deltafin {

enum ExitCode : int {
  kExitDone = 0,
  kExitUsage = 2,        // a wrong option or argument
  kExitBadModel = 3,     // model or data missing, damaged or not supported
  kExitResources = 4,    // not enough memory, or a feature this machine lacks
  kExitIo = 5,           // a drive or file failed
  kExitFaultsFound = 6,  // a check did its work and found faults
  kExitInterrupted = 130,
};

constexpr int ToExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return kExitBadModel;
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kDevice:
      return kExitResources;
    case ErrorCode::kIo:
    case ErrorCode::kDeadline:
    case ErrorCode::kInternal:
      return kExitIo;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
  }
  return kExitIo;
}

}  // namespace deltafin
