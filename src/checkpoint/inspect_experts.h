// inspect_experts: the expert set of a model, as far as `deltafin inspect` looks at it: folders, manifest, index, sizes
// of files. Never weights, so it does not tell whether the set was packed from this very model (`deltafin verify`
// does).
//
// A function without state; nothing is an error, what is wrong is in the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/model_spec.h"

namespace deltafin {

struct ExpertSetReport {
  std::vector<std::string> folders;   // as named or noted; empty when nothing says where the set is
  std::string set_id;                 // 16 hexadecimal digits; "" when neither the set nor a shard tells
  uint64_t generation = 0;            // of the one that would be used; 0 when there is none
  int64_t experts = 0;                // that it holds
  int64_t experts_expected = 0;       // that the model has
  bool reachable = false;             // all that it holds can be read
  bool complete = false;              // ... and it holds every expert of the model
  std::vector<std::string> warnings;  // such as a missing drive whose bytes have second copies
  std::string problem;                // why it is not reachable, or not complete; "" when it is both
};

// `folders`: one or more, as given or noted.
ExpertSetReport InspectExpertSet(const std::vector<std::string>& folders, const ModelSpec& spec);

}  // namespace deltafin
