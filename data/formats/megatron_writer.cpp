#include "data/formats/megatron_writer.h"

#include <limits>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "data/formats/megatron_format.h"

namespace slackline {
namespace {

template <typename T>
void write_value(FileWriter& file, const T& value) {
  file.write(std::as_bytes(std::span<const T>(&value, 1)));
}

}  // namespace

MegatronWriter::MegatronWriter(std::string prefix, std::int64_t vocabulary)
    : prefix_(std::move(prefix)),
      vocabulary_(vocabulary),
      width_(vocabulary < megatron::kFirstWideVocabulary ? TokenWidth::two : TokenWidth::four),
      bin_(prefix_ + ".bin"),
      idx_(prefix_ + ".idx") {}

void MegatronWriter::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    SL_CHECK(token >= 0 && token < vocabulary_, std::to_string(token));
  }
  if (width_ == TokenWidth::two) {
    narrow_.assign(tokens.begin(), tokens.end());
    bin_.write(std::as_bytes(std::span<const std::uint16_t>(narrow_)));
  } else {
    bin_.write(std::as_bytes(tokens));
  }
  sequence_tokens_ += tokens.size();
  num_tokens_ += tokens.size();
}

void MegatronWriter::end_sequence() {
  if (sequence_tokens_ > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    throw FileError(fmt::format("{}.idx: a sequence has fewer than 2^31 tokens; sequence {} has {}",
                                prefix_,
                                lengths_.size(),
                                sequence_tokens_));
  }
  lengths_.push_back(static_cast<std::int32_t>(sequence_tokens_));
  sequence_tokens_ = 0;
}

void MegatronWriter::end_document() {
  SL_CHECK_EQ(sequence_tokens_, 0U);
  boundaries_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

void MegatronWriter::write_index() {
  idx_.write(std::as_bytes(std::span(megatron::kMagic)));
  write_value(idx_, megatron::kVersion);
  write_value(idx_,
              width_ == TokenWidth::two ? megatron::TokenType::u16 : megatron::TokenType::i32);
  write_value<std::uint64_t>(idx_, lengths_.size());
  write_value<std::uint64_t>(idx_, boundaries_.size());
  idx_.write(std::as_bytes(std::span<const std::int32_t>(lengths_)));
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    write_value(idx_, offset);
    offset += static_cast<std::int64_t>(length) * static_cast<int>(width_);
  }
  idx_.write(std::as_bytes(std::span<const std::int64_t>(boundaries_)));
}

void MegatronWriter::commit_tokens() {
  SL_CHECK_EQ(sequence_tokens_, 0U);
  SL_CHECK_EQ(boundaries_.back(), static_cast<std::int64_t>(lengths_.size()));
  write_index();
  idx_.sync();  // before anything is replaced: the disk may be full
  bin_.sync();
  remove_tree(prefix_ + ".idx");
  bin_.commit();
}

void MegatronWriter::commit_index() {
  idx_.commit();
}

}  // namespace slackline
