// checkpoint_builder.h: a tiny checkpoint in the release's layout, written by src/synth, for tests of everything above
// it.
//
// A few layers, a few experts, and widths that are no power of two, so that code which assumes one fails. Takes
// milliseconds. Aborts when it cannot write: a test has nothing to do then.
#pragma once

#include <cstdint>
#include <string>

#include "spec/model_spec.h"

namespace deltafin::test {

struct TinyCheckpoint {
  int64_t layers = 5;  // KDA KDA KDA MLA MLA; the first feed-forward is dense
  int64_t experts = 10;
  int64_t experts_per_token = 3;
  int64_t vocabulary = 72;
  uint64_t seed = 1;
  bool uniform_routing = false;
};

// Hidden 72, three KDA heads of 24, two MLA heads of 20 + 12, experts 96 -> 32.
ModelSpec TinySpec(const TinyCheckpoint& tiny = {});

// Writes into `folder`, which must be empty or absent.
void BuildTinyCheckpoint(const std::string& folder, const TinyCheckpoint& tiny = {});

}  // namespace deltafin::test
