// Error: what went wrong, for a caller that decides and for a person who reads.
//
// A closed list of codes (programs branch on these), one message, and a context chain that each layer may prefix.
// Messages follow one pattern: what failed: which object: expected X, got Y: what to do. Thread rule: a value type.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace deltafin {

enum class ErrorCode {
  kInvalidArgument,  // the caller (or user) asked for something that makes no sense
  kNotFound,         // a named object does not exist
  kCorrupt,          // data that contradicts itself or its specification
  kUnsupported,      // understood, and not handled by this build or format
  kUnavailable,      // handled, but this machine or system refuses it now
  kIo,               // a drive or file failed
  kOutOfMemory,      // does not fit the memory budget
  kCancelled,        // somebody asked to stop
  kDeadline,         // took longer than allowed
  kDevice,           // an accelerator failed
  kInternal,         // a fault of ours that could be contained
};

std::string_view ToString(ErrorCode code);

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  // The whole chain, outermost first: "opening model: shard 3: header is truncated".
  const std::string& message() const { return message_; }

  // Puts `context` in front of the message: Error("b").WithContext("a") reads "a: b".
  Error WithContext(std::string_view context) && {
    message_.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace deltafin
