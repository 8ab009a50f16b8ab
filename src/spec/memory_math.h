// memory_math: bytes that a spec implies: what the weights weigh.
//
// Pure functions of ModelSpec. What a session carries and what activations take is counted by their owners.
#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace deltafin {

// As tensor_table lists them; A_log counted without padding.
uint64_t DenseWeightBytes(const ModelSpec& spec);
uint64_t ExpertWeightBytes(const ModelSpec& spec);

}  // namespace deltafin
