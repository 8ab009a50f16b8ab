// GenerationSettings: the fields about sampling, length and form of the answer that several endpoints share.
//
// Read with the strict reader; what is not given is the model's default. Seeds that are not given are drawn. Pure but
// for that. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "server/request_fields.h"
#include "server/server_context.h"

namespace deltafin {

struct GenerationSettings {
  SamplingParams sampling;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stops;
  int64_t max_new = 0;                            // 0: as many as the context allows
  std::string_view max_new_field = "max_tokens";  // what the request calls it: a literal
  int64_t choices = 1;
  int64_t top_scores = -1;  // see BatchRequest
  bool stream = false;
  bool include_usage = false;
};

// temperature, top_p, top_k, min_p, seed.
void ReadSampling(RequestFields& fields, const SamplingParams& defaults, SamplingParams* sampling);
// presence_penalty, frequency_penalty, repetition_penalty, logit_bias, n, stop, stream, stream_options.
void ReadCommonSettings(RequestFields& fields, const ServerContext& context, GenerationSettings* settings);
// A string or a list of strings.
void ReadStops(RequestFields& fields, std::string_view name, const RequestLimits& limits,
               std::vector<std::string>* stops);

// "chatcmpl-" and the like, with 24 random characters behind it.
std::string NewId(std::string_view prefix);
int64_t SecondsSince1970();

}  // namespace deltafin
