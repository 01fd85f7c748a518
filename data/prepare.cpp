#include "data/prepare.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/documents.h"
#include "data/formats/megatron_writer.h"
#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "data/tokenizers/sentencepiece_training.h"

namespace slackline {
namespace {

void require_valid(const PrepareOptions& options) {
  if (options.inputs.empty()) {
    throw ConfigError("--input: at least one file is required; got none");
  }
  if (options.out.empty() || options.out.ends_with('/')) {
    throw ConfigError(
        fmt::format("--out: a prefix is expected, such as corpus/english; got '{}'", options.out));
  }
}

void make_parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty()) {
    make_directories(parent);
  }
}

// "sentencepiece", or with the path of a model behind a colon.
bool names_sentencepiece(std::string_view tokenizer) {
  constexpr std::string_view kType = SentencePieceTokenizer::kType;
  return tokenizer.starts_with(kType) &&
         (tokenizer.size() == kType.size() || tokenizer[kType.size()] == ':');
}

// A trained model goes where the option says ("sentencepiece:MODEL"), or beside the tokens.
std::string trained_model_path(const PrepareOptions& options) {
  constexpr std::size_t kBegin = SentencePieceTokenizer::kType.size() + 1;
  return options.tokenizer.size() > kBegin ? options.tokenizer.substr(kBegin)
                                           : options.out + ".model";
}

// Says so before hours are spent on the first of them.
void require_inputs_are_there(const std::vector<std::string>& inputs) {
  for (const std::string& path : inputs) {
    if (!path_exists(path) || is_directory(path)) {
      const int error = is_directory(path) ? EISDIR : ENOENT;
      throw FileError(fmt::format("{}: cannot open: {}", path, std::strerror(error)));
    }
  }
}

struct TrainedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer{};
  std::unique_ptr<FileWriter> model{};  // written, and not there yet
};

// Trains the model and writes it where the options say, yet to be committed.
TrainedTokenizer train_tokenizer(const PrepareOptions& options) {
  if (options.special_tokens == SpecialTokens::recognized) {
    throw ConfigError("--special-tokens: not with --train-sentencepiece, which has none");
  }
  if (!names_sentencepiece(options.tokenizer)) {
    throw ConfigError(fmt::format(
        "--train-sentencepiece: needs --tokenizer sentencepiece or sentencepiece:MODEL; "
        "got --tokenizer {}",
        options.tokenizer));
  }
  for (const std::string& input : options.inputs) {  // which are read once more
    if (path_exists(input) && !is_regular_file(input)) {
      throw ConfigError(
          fmt::format("--train-sentencepiece: reads the text twice, so inputs must be regular "
                      "files; got {}",
                      input));
    }
  }
  require_inputs_are_there(options.inputs);
  const std::string path = trained_model_path(options);
  make_parent(path);
  auto writer = std::make_unique<FileWriter>(path);
  const std::string model = train_sentencepiece(options.inputs, options.train_sentencepiece);
  writer->write(model);
  return {.tokenizer = std::make_unique<SentencePieceTokenizer>(model, path),
          .model = std::move(writer)};
}

// No input may be one of the files that are written, or bear the name under which they grow; nor
// may anything but a file have their names.
void require_names_are_free(const PrepareOptions& options) {
  std::vector<std::string> outputs = {
      options.out + ".bin", options.out + ".idx", tokenizer_path(options.out)};
  if (options.train_sentencepiece > 0) {
    outputs.push_back(trained_model_path(options));
  }
  for (const std::string& output : outputs) {
    for (const std::string& input : options.inputs) {
      if (is_same_file(input, output) || is_same_file(input, output + ".partial")) {
        throw ConfigError(fmt::format(
            "--out: {} would overwrite the input {}; choose another prefix", output, input));
      }
    }
    if (path_exists(output) && !is_regular_file(output)) {
      throw FileError(
          fmt::format("{}: is no file, and stays as it is; choose another --out", output));
    }
  }
}

// Encodes a piece of a document into a sequence of the writer.
void write_piece(const DocumentPiece& piece, const Tokenizer& tokenizer, MegatronWriter& writer) {
  std::vector<TokenId> ids;
  tokenizer.encode_part(piece.text, piece.part, ids);
  if (piece.ends_document) {
    ids.push_back(tokenizer.end_of_text());
  }
  writer.append(ids);
  writer.end_sequence();
  if (piece.ends_document) {
    writer.end_document();
  }
}

}  // namespace

PrepareSummary prepare(const PrepareOptions& options,
                       const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  require_valid(options);
  require_names_are_free(options);
  make_parent(options.out);
  TrainedTokenizer trained;
  if (options.train_sentencepiece > 0) {
    trained = train_tokenizer(options);
  } else {
    trained.tokenizer = tokenizer_from_option(options.tokenizer, options.special_tokens);
    require_inputs_are_there(options.inputs);
  }
  const std::unique_ptr<Tokenizer>& tokenizer = trained.tokenizer;
  MegatronWriter writer(options.out, tokenizer->vocabulary_size());
  FileWriter tokenizer_writer(tokenizer_path(options.out));
  tokenizer_writer.write(tokenizer_to_json(*tokenizer));

  PrepareSummary summary{.vocabulary = tokenizer->vocabulary_size()};
  const std::uint64_t bytes_total = total_bytes(options.inputs);
  std::uint64_t bytes_before = 0;
  for (const std::string& path : options.inputs) {
    const auto reader = open_documents(
        path, [&tokenizer](std::string_view text) { return tokenizer->split_point(text); });
    while (const std::optional<DocumentPiece> piece = reader->next()) {
      write_piece(*piece, *tokenizer, writer);
      summary.text_bytes += piece->text.size();
      if (progress) {
        progress(bytes_before + reader->bytes_read(), bytes_total);
      }
    }
    bytes_before += reader->bytes_read();
  }
  if (writer.num_documents() == 0) {
    throw FileError(fmt::format("{}: no text in the input files", options.inputs.front()));
  }
  summary.documents = writer.num_documents();
  summary.tokens = writer.num_tokens();
  tokenizer_writer.sync();
  if (trained.model) {
    trained.model->sync();
  }
  writer.commit_tokens();
  if (trained.model) {
    trained.model->commit();
  }
  tokenizer_writer.commit();
  writer.commit_index();
  return summary;
}

}  // namespace slackline
