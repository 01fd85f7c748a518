#include "core/checkpoint/write_shards.h"

#include <fmt/format.h>

#include "core/check.h"
#include "core/file_io.h"
#include "core/tensor/safetensors.h"

namespace slackline {

namespace {

struct ShardFile {
  std::string name;
  std::vector<NamedTensor> pieces;
};

// Deals pieces out to shards in the order given, and notes in the list where each one goes.
class ShardPlan {
 public:
  ShardPlan(const ShardOptions& options, ShardList& list) : options_(options), list_(list) {}

  void add(const CheckpointTensor& piece) {
    const std::size_t slash = piece.name.find('/');
    SL_CHECK(slash != std::string::npos, "a tensor needs a group: " + piece.name);
    SL_CHECK(!piece.place, "not staged: " + piece.name);
    const Region region = piece.region();
    SL_CHECK(is_inside(region, piece.logical_shape()), "piece of " + piece.name);
    ShardFile& shard = shard_for(piece.name.substr(0, slash), piece.bytes());
    ManifestTensor& tensor =
        list_.tensors
            .try_emplace(piece.name, ManifestTensor{piece.logical_shape(), piece.data.dtype()})
            .first->second;
    SL_CHECK(tensor.shape == piece.logical_shape() && tensor.dtype == piece.data.dtype(),
             "pieces disagree about " + piece.name);
    tensor.pieces.push_back({shard.name, region, piece.worker});
    shard.pieces.push_back({piece_key(piece.name, tensor.shape, region, piece.worker), piece.data});
  }

  [[nodiscard]] const std::vector<ShardFile>& shards() const { return shards_; }

 private:
  struct Group {
    std::size_t num_shards = 0;
    std::size_t open = 0;   // position in shards_ of the one being filled
    std::size_t bytes = 0;  // in it
  };

  ShardFile& shard_for(const std::string& name, std::size_t bytes) {
    Group& group = groups_[name];
    if (group.num_shards == 0 || (group.bytes > 0 && group.bytes + bytes > options_.shard_bytes)) {
      group.open = shards_.size();
      group.bytes = 0;
      shards_.push_back({file_name(name, group.num_shards++), {}});
    }
    group.bytes += bytes;
    return shards_[group.open];
  }

  [[nodiscard]] std::string file_name(const std::string& group, std::size_t number) const {
    return options_.size == 1
               ? fmt::format("{}-{:05}.safetensors", group, number)
               : fmt::format("{}-{:05}-{:05}.safetensors", group, options_.rank, number);
  }

  const ShardOptions& options_;
  ShardList& list_;
  std::vector<ShardFile> shards_{};
  std::map<std::string, Group> groups_{};
};

}  // namespace

ShardList write_shards(const std::string& directory,
                       const CheckpointContents& contents,
                       const ShardOptions& options) {
  ShardList list{.step = contents.step, .rank = options.rank};
  ShardPlan plan(options, list);
  for (const CheckpointTensor& piece : contents.tensors) {
    plan.add(piece);
  }
  make_directories(directory);
  for (const ShardFile& shard : plan.shards()) {
    const FileSummary summary = write_safetensors(
        fmt::format("{}/{}", directory, shard.name), shard.pieces, {{"format", "pt"}});
    list.files[shard.name] = {summary.bytes, summary.xxh3};
  }
  return list;
}

}  // namespace slackline
