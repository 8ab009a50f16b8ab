// memory_math: bytes that a spec implies: what a session carries, and what the weights weigh.
//
// Pure functions of ModelSpec. States and caches are float32. Activations are counted by their owner.
#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace deltafin {

// One session, all KDA layers: S [heads, head_dim, head_dim] and three convolution tails [taps - 1, kda_width].
uint64_t KdaStateBytes(const ModelSpec& spec);

// One token, all MLA layers: the latent and the shared key part.
uint64_t MlaCacheBytesPerToken(const ModelSpec& spec);

// As tensor_table lists them; A_log counted without padding.
uint64_t DenseWeightBytes(const ModelSpec& spec);
uint64_t ExpertWeightBytes(const ModelSpec& spec);

}  // namespace deltafin
