// TimedBackend: a Backend that passes every operation on to another one and counts how long it took.
//
// For measuring what a step costs outside its operations. Owns the other backend; the counts outlive it. Costs two
// looks at the clock an operation. Thread rule, errors: those of the other backend.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace deltafin {

// The operations that are worth telling apart.
enum class TimedOperation : uint8_t { kLinear, kHead, kExpertMlp, kRouter, kKda, kMlaAttend, kOthers };
constexpr size_t kTimedOperations = 7;
const char* TimedOperationName(TimedOperation operation);

struct BackendTimes {
  int64_t total() const;

  std::array<int64_t, kTimedOperations> nanoseconds = {};
  uint64_t operations = 0;
  int64_t head_outputs = 0;  // a matrix with so many outputs is the head; 0: the head is a dense matrix as others
};

std::unique_ptr<Backend> MakeTimedBackend(std::unique_ptr<Backend> backend, BackendTimes& times);

}  // namespace deltafin
