#include "app/lookahead_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace deltafin {
namespace {

constexpr size_t kLayersPerLine = 5;

double Recall(const LayerLookahead& layer) {
  return layer.wanted == 0 ? 0 : static_cast<double>(layer.predicted) / static_cast<double>(layer.wanted);
}

}  // namespace

Json LookaheadFigures(const std::vector<LayerLookahead>& layers, uint64_t record_bytes) {
  Json out = Json::array();
  for (const LayerLookahead& layer : layers) {
    Json figures;
    figures["layer"] = layer.layer;
    figures["wanted"] = layer.wanted;
    figures["predicted"] = layer.predicted;
    figures["recall"] = Recall(layer);
    figures["read_ahead"] = layer.read_ahead;
    figures["wrong"] = layer.wrong;
    figures["wasted_bytes_most"] = layer.wrong * record_bytes;
    out.push_back(std::move(figures));
  }
  return out;
}

std::string LookaheadTable(const std::vector<LayerLookahead>& layers, uint64_t record_bytes) {
  std::string text;
  size_t shown = 0;
  for (const LayerLookahead& layer : layers) {
    if (layer.wanted == 0 && layer.read_ahead == 0) continue;
    char cell[80];
    std::snprintf(cell, sizeof cell, "%3d: %3.0f %% %8s", static_cast<int>(layer.layer), 100 * Recall(layer),
                  FormatBytes(layer.wrong * record_bytes).c_str());
    text += shown % kLayersPerLine == 0 ? "\n  " : "   ";
    text += cell;
    ++shown;
  }
  return shown == 0 ? "" : "by layer, guessed right by its router and read in vain (at most):" + text + "\n";
}

std::vector<LayerLookahead> SinceThen(std::vector<LayerLookahead> layers, const std::vector<LayerLookahead>& before) {
  for (size_t i = 0; i < before.size() && i < layers.size(); ++i) layers[i] = layers[i].Since(before[i]);
  return layers;
}

}  // namespace deltafin
