// lookahead_report: what was guessed about the experts of each layer before it came, as JSON and as a table for a
// person.
//
// "Recall" is the share of the experts that a layer wanted which its own router, asked one layer before, had named.
// Bytes read in vain are the most it can have been: a wrong guess that was cancelled on its way cost less. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace deltafin {

// One object a layer.
Json LookaheadFigures(const std::vector<LayerLookahead>& layers, uint64_t record_bytes);
// Several layers a line; "" when no router was asked.
std::string LookaheadTable(const std::vector<LayerLookahead>& layers, uint64_t record_bytes);

// Layer by layer; `before` may be empty.
std::vector<LayerLookahead> SinceThen(std::vector<LayerLookahead> layers, const std::vector<LayerLookahead>& before);

}  // namespace deltafin
