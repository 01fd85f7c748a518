#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "core/tensor/safetensors.h"
#include "model/parameters.h"

namespace slackline {

// The weights of a GPT-2 directory: model.safetensors, or the shards that
// model.safetensors.index.json lists. Names are read with and without the prefix "transformer.";
// causal-mask buffers (h.{i}.attn.bias, h.{i}.attn.masked_bias) of older files are passed over.
class HuggingFaceWeights {
 public:
  // Throws FileError for files that are missing or corrupt, and for a name that stands twice.
  explicit HuggingFaceWeights(const std::string& directory);

  // Throws FileError naming the tensor when one is missing, has another shape, or is not part of
  // the model: before anyone makes room for what a config claims.
  void require_model(const ModelConfig& config) const;

  // Copies every weight, converting F16 and BF16 to f32 (both exact). Matrices keep their shape:
  // the library's Conv1D stores (in, out) as we do. Throws FileError naming the tensor when one has
  // another element type; and when a tied model's lm_head.weight is not wte.weight. REQUIRES:
  // require_model did not throw.
  void read_into(Parameters& parameters) const;

 private:
  struct Source {
    const SafetensorsFile& file;  // of files_
    const SafetensorsFile::Entry& entry;
  };

  void add_file(const std::string& path);
  void refuse_unknown(const std::vector<ParameterSpec>& table) const;
  [[nodiscard]] const Source& find(const std::string& name, const Shape& shape) const;
  // Writes the f32 values. REQUIRES: destination is f32, of the model's shape.
  void read(const std::string& name, const Tensor& destination) const;
  void check_tied_head(const Tensor& token_table) const;

  std::string directory_;
  std::list<SafetensorsFile> files_;
  std::map<std::string, Source> sources_;  // by name without prefix; no mask buffers
};

// Our parameters under the library's names, in the order and with the prefix it saves them.
// Views of the parameters' weights.
[[nodiscard]] std::vector<NamedTensor> hugging_face_tensors(const Parameters& parameters);

}  // namespace slackline
