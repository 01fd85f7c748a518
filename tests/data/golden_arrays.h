#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/tensor/safetensors.h"

namespace slackline {

// The integer and double arrays of one golden file, flat.
class GoldenArrays {
 public:
  explicit GoldenArrays(const std::string& name)
      : file_(std::string(SL_SOURCE_DIR "/tests/golden/order/") + name + ".safetensors") {}

  [[nodiscard]] const std::string& name() const { return file_.path(); }

  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name) const {
    return read<std::int64_t>(name);
  }

  [[nodiscard]] std::uint64_t integer(const std::string& name) const {
    return static_cast<std::uint64_t>(integers(name).at(0));
  }

  [[nodiscard]] std::vector<double> doubles(const std::string& name) const {
    return read<double>(name);
  }

 private:
  template <typename T>
  [[nodiscard]] std::vector<T> read(const std::string& name) const {
    const auto* const entry = file_.find(name);
    SL_CHECK(entry != nullptr, file_.path() + " has no array " + name);
    SL_CHECK(entry->dtype == kDTypeOf<T>, file_.path() + " has other elements in " + name);
    std::vector<T> values(entry->shape.num_elements());
    std::ranges::copy(file_.bytes(*entry), std::as_writable_bytes(std::span(values)).begin());
    return values;
  }

  SafetensorsFile file_;
};

}  // namespace slackline
