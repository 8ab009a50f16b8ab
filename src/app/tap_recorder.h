// TapRecorder: keeps every tap of a pass under the reference's names, for `logits --taps`.
//
// A prompt longer than one chunk is seen in pieces; they are joined row by row. Thread rule: engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/activation_tap.h"

namespace deltafin {

class TapRecorder final : public ActivationTap {
 public:
  struct Floats {
    int64_t width = 0;
    std::vector<float> values;  // [rows, width]
  };
  struct Ids {
    int64_t width = 0;
    std::vector<int64_t> values;  // [rows, width]
  };

  void OnRows(const std::string& name, const ConstRows& rows) override;
  void OnIds(const std::string& name, std::span<const int32_t> ids, int64_t per_row) override;

  const std::map<std::string, Floats>& floats() const { return floats_; }
  const std::map<std::string, Ids>& ids() const { return ids_; }

 private:
  std::map<std::string, Floats> floats_;
  std::map<std::string, Ids> ids_;
};

}  // namespace deltafin
