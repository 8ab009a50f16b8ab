// GoldenFile: expected.golden, the recorded values of the reference (a safetensors file with F32, BF16 and I64 tensors).
//
// The whole file is in memory. Immutable. Loading aborts the test program with a message when the file is not readable:
// it is part of the repository.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace deltafin::test {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  bool Has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  std::vector<std::string> Names() const;
  // These abort on a name that is not there, or of the other type.
  const Shape& ShapeOf(std::string_view name) const;
  const std::vector<float>& Floats(std::string_view name) const;  // F32, or BF16 widened; row-major
  const std::vector<int64_t>& Ints(std::string_view name) const;  // I64, row-major

 private:
  struct Entry {
    Shape shape;
    std::vector<float> floats;
    std::vector<int64_t> ints;
  };
  const Entry& Find(std::string_view name) const;

  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace deltafin::test
