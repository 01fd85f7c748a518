#include "core/checkpoint/logical_hash.h"

#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/joined_text.h"

namespace slackline {

namespace {

constexpr std::string_view kGroup = "weights/";

}  // namespace

std::string logical_weights_sha256(Checkpoint& checkpoint) {
  Sha256 hash;
  std::vector<float> values;
  bool found = false;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.starts_with(kGroup)) {
      continue;
    }
    found = true;
    checkpoint.require_pieces(name);
    values.resize(tensor.shape.num_elements());
    checkpoint.read(name, Tensor(values.data(), DType::f32, tensor.shape));
    const std::string text =
        fmt::format("{}\n{}\n", name.substr(kGroup.size()), joined(tensor.shape.dims(), ","));
    hash.update(std::as_bytes(std::span(text)));
    hash.update(std::as_bytes(std::span(values)));
  }
  if (!found) {
    throw FileError(checkpoint.path() + ": the checkpoint has no tensors under weights/");
  }
  return hash.hex_digest();
}

}  // namespace slackline
