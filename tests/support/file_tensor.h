#pragma once

#include <cstddef>
#include <string>

#include "core/check.h"
#include "core/tensor/safetensors.h"

namespace slackline::testing {

// A view of a tensor of the file for reading only (a write faults), alive as long as `file`.
// REQUIRES: the file has it, at a multiple of the element size where elements are accessed.
[[nodiscard]] inline Tensor file_tensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsFile::Entry* const entry = file.find(name);
  SL_CHECK(entry != nullptr, file.path() + " has no tensor " + name);
  return {const_cast<std::byte*>(file.bytes(*entry).data()), entry->dtype, entry->shape};
}

}  // namespace slackline::testing
