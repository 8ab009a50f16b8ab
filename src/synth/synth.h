// synth.h: writes a complete checkpoint with invented weights, in the release's layout, for machines without the
// release.
//
// What comes out: config.json, generation_config.json, model.safetensors.index.json, and shards named
// model-00001-of-000005.safetensors: layer l alone in shard l + 1, the globals in the last; tensors of a shard in the
// order of their names, so the six tensors of an expert lie back to back. No tokenizer: ids only. Same options, same
// bytes, on every machine and for any number of threads.
//
// The text is nonsense, but reads behave like those of a trained model, so that caches and predictors have something to
// find:
//  - Use of the experts is skewed, like Zipf's law: e_score_correction_bias gives rank r a share of about
//    1 / (r + experts / 32) of a layer's choices, and what all embeddings have in common adds to it.
//  - Consecutive tokens route alike: embeddings fall into clusters of 32 tokens that share 40 % of their energy (20 %
//  is
//    common to all), attention carries context along, and the output head favours a walk through one cluster after the
//    other, so that generated text changes its topic slowly and does not repeat one token.
//  - Neighbouring layers route alike: layers l and l + d share (4 - d) / 4 of router directions and popularity; the
//    residual stream makes the next layer's router on this layer's input a fair prediction.
//  - kUniform switches all of it off, as a negative control: no bias, unrelated embeddings and routers.
// Errors: kInvalidArgument (folder not empty), kUnavailable (not enough free space, with expected and available bytes),
// kIo, kCancelled. After an error nothing that this call made is left behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "spec/model_spec.h"
#include "synth/shapes.h"
#include "synth/weight_fill.h"

namespace deltafin {

struct SynthOptions {
  ModelSpec spec = {};  // from MakeSynthSpec
  uint64_t seed = 0;
  SynthRouting routing = SynthRouting::kSkewed;
  std::string folder = {};  // made if it does not exist
  int threads = 1;
};

// What would be written, without writing.
struct SynthPlan {
  int shards = 0;
  uint64_t dense_bytes = 0;
  uint64_t expert_bytes = 0;
  uint64_t file_bytes = 0;       // the shards, headers included
  uint64_t bytes_per_token = 0;  // weights one cold token touches: all dense ones but one embedding row, top-k experts
};
SynthPlan PlanSynth(const ModelSpec& spec);

struct SynthProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  int shard = 0;  // from 1
  int shards = 0;
};
// Called about every 8 MiB, on the calling thread.
using SynthProgressCallback = std::function<void(const SynthProgress&)>;

Status Synthesize(const SynthOptions& options, const SynthProgressCallback& progress = {}, CancelToken cancel = {});

}  // namespace deltafin
