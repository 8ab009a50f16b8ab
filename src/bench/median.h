// Median: the middle value, of an even number of them the upper middle one; 0 of none.
//
// A pure function; its argument is a copy to sort.
#pragma once

#include <algorithm>
#include <vector>

namespace deltafin {

inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace deltafin
