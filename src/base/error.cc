#include "base/error.h"

namespace deltafin {

std::string_view ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kIo:
      return "I/O error";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDeadline:
      return "deadline exceeded";
    case ErrorCode::kDevice:
      return "device error";
    case ErrorCode::kInternal:
      return "internal error";
  }
  return "unknown error";
}

}  // namespace deltafin
