// raw_safetensors.h: reads a small safetensors file the plain way, independent of src/checkpoint, to check what was
// written.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/float_types.h"

namespace deltafin::test {

struct RawSafetensors {
  nlohmann::ordered_json header;
  std::string data;
  uint64_t header_bytes = 0;  // as the first eight bytes say

  static RawSafetensors Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    RawSafetensors raw;
    raw.header_bytes = LoadUnaligned<uint64_t>(all.data());
    raw.header = nlohmann::ordered_json::parse(all.substr(8, raw.header_bytes));
    raw.data = all.substr(8 + raw.header_bytes);
    return raw;
  }

  std::string Bytes(const std::string& name) const {
    const auto& offsets = header.at(name).at("data_offsets");
    const auto begin = offsets[0].get<size_t>();
    return data.substr(begin, offsets[1].get<size_t>() - begin);
  }

  // BF16 or F32 values.
  std::vector<float> Floats(const std::string& name) const {
    const std::string bytes = Bytes(name);
    std::vector<float> values;
    if (header.at(name).at("dtype") == "F32") {
      for (size_t i = 0; i < bytes.size(); i += 4) values.push_back(LoadUnaligned<float>(bytes.data() + i));
    } else {
      for (size_t i = 0; i < bytes.size(); i += 2)
        values.push_back(Bf16ToFloat(LoadUnaligned<uint16_t>(bytes.data() + i)));
    }
    return values;
  }
};

}  // namespace deltafin::test
