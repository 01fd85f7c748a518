#include "tools/infer/model_loader.h"

#include <filesystem>
#include <string>

#include "core/checkpoint/write_checkpoint.h"
#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"

namespace slackline {
namespace {

// A checkpoint whose tensors are not quite those of small_model(40).
struct ChangedCheckpoint {
  TemporaryDirectory directory;
  ModelConfig config = small_model(40);
  Parameters parameters = random_parameters(config, 1);
  CheckpointContents contents;

  ChangedCheckpoint() {
    contents.documents.model = model_config_json(config);
    for (const Parameter& parameter : parameters.all()) {
      contents.tensors.push_back(
          {.name = "weights/" + parameter.spec.name, .data = parameter.weight});
    }
  }

  Checkpoint written() {
    write_checkpoint(directory.file("checkpoint"), contents);
    return open_checkpoint(directory.file("checkpoint"));
  }
};

}  // namespace

TEST_CASE("weights, their bf16 copies, config and tokenizer come back as they were written") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(300);
  const Parameters original = random_parameters(config, 1);
  write_small_checkpoint(directory.file("a"), config, original, tokenizer_to_json(ByteTokenizer()));
  const InferenceModel model = load_inference_model(directory.file("a"), 1);
  CHECK(model.config == config);
  REQUIRE(model.tokenizer != nullptr);
  CHECK(model.tokenizer->type() == "byte");

  Parameters copied(config, {.compute = DType::bf16});
  Stream stream({});
  Checkpoint checkpoint = open_checkpoint(directory.file("a"));
  load_weights(stream, checkpoint, copied);
  std::size_t num_copies = 0;
  for (std::size_t p = 0; p < original.all().size(); ++p) {
    const std::span<float> expected = original.all()[p].weight.span<float>();
    const std::span<float> found = model.parameters->all()[p].weight.span<float>();
    REQUIRE(std::equal(expected.begin(), expected.end(), found.begin(), found.end()));
    const Tensor& copy = copied.all()[p].weight_bf16;
    for (std::size_t i = 0; !copy.empty() && i < expected.size(); ++i) {
      REQUIRE(copy.data<BFloat16>()[i] == BFloat16(expected[i]));
    }
    num_copies += copy.empty() ? 0 : 1;
  }
  // Both tables, and of each layer the four matrices and their biases.
  CHECK(num_copies == 2 + 8 * static_cast<std::size_t>(config.layers));
}

TEST_CASE("a model's settings must be the checkpoint's, dropout and recomputation aside") {
  ChangedCheckpoint changed;
  const Checkpoint checkpoint = changed.written();
  ModelConfig config = changed.config;
  config.dropout = 0.5F;
  config.recompute = Recompute::block;
  CHECK_NOTHROW(require_model(checkpoint, config));
  config.heads = 2;  // no shape tells
  CHECK_THROWS_AS(require_model(checkpoint, config), FileError);
  CHECK_THROWS_WITH(require_model(checkpoint, config),
                    Catch::EndsWith("is of another model: model.heads must be 2; got 3"));
}

TEST_CASE("a tensor that is missing, of another shape or of no model is named") {
  ChangedCheckpoint changed;
  std::string message;
  SECTION("missing") {
    changed.contents.tensors.erase(changed.contents.tensors.begin() + 4);
    message = "has no tensor weights/h.0.attn.c_attn.weight";
  }
  SECTION("another shape") {
    CheckpointTensor& tensor = changed.contents.tensors[4];
    tensor.data = tensor.data.reshaped({36, 12});
    message = "tensor weights/h.0.attn.c_attn.weight must be f32 (12, 36); got f32 (36, 12)";
  }
  SECTION("unknown") {
    changed.contents.tensors.push_back(
        {.name = "weights/extra", .data = changed.contents.tensors[3].data});
    message = "tensor weights/extra is not part of its model";
  }
  const Checkpoint checkpoint = changed.written();
  CHECK_THROWS_AS(require_model(checkpoint, changed.config), FileError);
  CHECK_THROWS_WITH(require_model(checkpoint, changed.config), Catch::EndsWith(message));
}

TEST_CASE("a manifest whose model is none is the file's fault") {
  ChangedCheckpoint changed;
  changed.contents.documents.model = R"({"layers": 2})";
  const Checkpoint checkpoint = changed.written();
  CHECK_THROWS_AS(checkpoint_model(checkpoint), FileError);
  CHECK_THROWS_WITH(checkpoint_model(checkpoint), Catch::Contains("manifest.json: model: "));
}

TEST_CASE("a tokenizer with more tokens than the model is refused") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(256);
  write_small_checkpoint(directory.file("a"),
                         config,
                         random_parameters(config, 1),
                         tokenizer_to_json(ByteTokenizer()));
  CHECK_THROWS_AS(load_inference_model(directory.file("a"), 1), FileError);
  CHECK_THROWS_WITH(load_inference_model(directory.file("a"), 1),
                    Catch::EndsWith("more tokens than the model's vocabulary of 256; got 257"));
}

TEST_CASE("a flipped bit, a missing directory and a run directory are refused") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  const std::string path = directory.file("run/checkpoints/step-00000003");
  write_small_checkpoint(path, config, random_parameters(config, 1));
  CHECK_THROWS_AS(open_checkpoint(directory.file("nothing")), FileError);
  CHECK_THROWS_WITH(open_checkpoint(directory.file("run")),
                    Catch::EndsWith("its newest is " + path));

  const std::string shard = path + "/weights-00000.safetensors";
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file_atomically(shard, bytes);
  CHECK_THROWS_AS(open_checkpoint(path), FileError);
  CHECK_THROWS_WITH(open_checkpoint(path), Catch::StartsWith(shard + ": "));
}

}  // namespace slackline
