#include "model/shard.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/logical_hash.h"
#include "core/checkpoint/shard_writer.h"
#include "core/checkpoint/write_checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

namespace {

// Head size 3; neither vocabulary nor inner width divides by the ranks.
ModelConfig small_model() {
  ModelConfig config;
  config.layers = 1;
  config.hidden = 24;
  config.heads = 8;
  config.sequence = 5;
  config.vocab = 13;
  config.ffn = 37;
  config.tie_embeddings = false;
  return config;
}

ParameterSpec spec_of(const ModelConfig& config, const std::string& name) {
  for (const ParameterSpec& spec : parameter_table(config)) {
    if (spec.name == name) {
      return spec;
    }
  }
  throw std::runtime_error("no parameter " + name);
}

// Flat row-major indices of a region's elements in a tensor, in the region's order.
std::vector<std::size_t> indices_of(const Region& region, const Shape& shape) {
  std::vector<std::size_t> indices;
  const bool matrix = shape.rank() == 2;
  const std::int64_t rows = matrix ? region.shape[0] : 1;
  const std::int64_t columns = matrix ? shape[1] : 0;
  const std::int64_t row = matrix ? region.start[0] : 0;
  for (std::int64_t i = row; i < row + rows; ++i) {
    for (std::int64_t j = 0; j < region.shape[-1]; ++j) {
      indices.push_back(static_cast<std::size_t>(i * columns + region.start.back() + j));
    }
  }
  return indices;
}

// Logical index of every local element, from parts that must cover the local tensor once.
std::vector<std::size_t> logical_indices(const Shard& shard, const Shape& logical) {
  constexpr auto kUnset = static_cast<std::size_t>(-1);
  std::vector<std::size_t> map(shard.shape.num_elements(), kUnset);
  for (const ShardPart& part : shard.parts) {
    const auto from = indices_of(part.logical, logical);
    const auto to = indices_of(part.local, shard.shape);
    REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      REQUIRE(map[to[i]] == kUnset);
      map[to[i]] = from[i];
    }
  }
  REQUIRE(std::ranges::count(map, kUnset) == 0);
  return map;
}

}  // namespace

TEST_CASE("heads of Q, K and V go together, tables by rows, inner widths by columns") {
  const ModelConfig config = small_model();
  const auto shard = [&](const std::string& name, int rank, int size) {
    return shard_of(spec_of(config, name), config, rank, size);
  };
  const Shard qkv = shard("h.0.attn.c_attn.weight", 1, 4);
  REQUIRE(qkv.shape == Shape{24, 18});
  REQUIRE(qkv.parts.size() == 3);
  REQUIRE(qkv.parts[1].logical == Region{{0, 24 + 6}, {24, 6}});
  REQUIRE(qkv.parts[1].local == Region{{0, 6}, {24, 6}});
  REQUIRE(shard("h.0.attn.c_attn.bias", 3, 4).parts[2].logical == Region{{48 + 18}, {6}});
  REQUIRE(shard("h.0.attn.c_proj.weight", 1, 4).parts[0].logical == Region{{6, 0}, {6, 24}});
  REQUIRE(shard("wte.weight", 1, 4).parts[0].logical == Region{{3, 0}, {3, 24}});
  REQUIRE(shard("lm_head.weight", 3, 4).parts[0].logical == Region{{9, 0}, {4, 24}});
  REQUIRE(shard("h.0.mlp.c_fc.weight", 1, 2).parts[0].logical == Region{{0, 18}, {24, 19}});
  REQUIRE(shard("h.0.mlp.c_fc.bias", 1, 2).parts[0].logical == Region{{18}, {19}});
  REQUIRE(shard("h.0.mlp.c_proj.weight", 1, 2).parts[0].logical == Region{{18, 0}, {19, 24}});
  for (const char* whole : {"wpe.weight", "ln_f.weight", "h.0.ln_1.bias", "h.0.attn.c_proj.bias"}) {
    const Shard part = shard(whole, 1, 4);
    REQUIRE(part.shape == spec_of(config, whole).shape);
    REQUIRE(part.parts[0].logical == whole_region(part.shape));
  }
  REQUIRE(shard("wte.weight", 8, 16).parts[0].logical == Region{{6, 0}, {1, 24}});
  REQUIRE(shard("wte.weight", 0, 16).parts.empty());
}

TEST_CASE("the ranks' shards cover every cut parameter once") {
  const ModelConfig config = small_model();
  for (const int size : {1, 2, 4, 8}) {
    for (const ParameterSpec& spec : parameter_table(config)) {
      std::multiset<std::size_t> covered;
      for (int rank = 0; rank < size; ++rank) {
        const auto map = logical_indices(shard_of(spec, config, rank, size), spec.shape);
        covered.insert(map.begin(), map.end());
        if (spec.cut == TensorCut::none) {
          REQUIRE(map.size() == spec.shape.num_elements());
          break;
        }
      }
      CAPTURE(spec.name, size);
      REQUIRE(covered.size() == spec.shape.num_elements());
      REQUIRE(std::set(covered.begin(), covered.end()).size() == covered.size());
    }
  }
}

TEST_CASE("the parts of a flat range hold its elements and no others") {
  const ModelConfig config = small_model();
  std::mt19937 random(1);
  for (const ParameterSpec& spec : parameter_table(config)) {
    const Shard shard = shard_of(spec, config, 1, 4);
    const std::vector<std::size_t> map = logical_indices(shard, spec.shape);
    for (int trial = 0; trial < 40; ++trial) {
      std::uniform_int_distribution<std::size_t> pick(0, map.size());
      Slice range{pick(random), pick(random)};
      range = {std::min(range.begin, range.end), std::max(range.begin, range.end)};
      std::set<std::size_t> seen;
      for (const ShardPart& part : parts_of_range(shard, range)) {
        REQUIRE(part.logical.shape == part.local.shape);
        const auto logical = indices_of(part.logical, spec.shape);
        const auto local = indices_of(part.local, shard.shape);
        for (std::size_t i = 0; i < local.size(); ++i) {
          REQUIRE(seen.insert(local[i]).second);
          REQUIRE(map[local[i]] == logical[i]);
        }
      }
      CAPTURE(spec.name, range.begin, range.end);
      REQUIRE(seen.size() == range.count());
      REQUIRE((seen.empty() || (*seen.begin() == range.begin && *seen.rbegin() + 1 == range.end)));
    }
  }
}

namespace {

using Values = std::vector<float>;

// A model's state by logical name; any bits, since a checkpoint keeps them all.
struct LogicalState {
  std::map<std::string, Values> weights{};
  std::map<std::string, Values> moments{};
};

LogicalState random_state(const ModelConfig& config) {
  std::mt19937 random(7);
  LogicalState state;
  for (const ParameterSpec& spec : parameter_table(config)) {
    for (auto* group : {&state.weights, &state.moments}) {
      Values& values = (*group)[spec.name];
      values.resize(spec.shape.num_elements());
      for (float& value : values) {
        const auto bits = static_cast<std::uint32_t>(random());
        std::memcpy(&value, &bits, sizeof bits);
      }
    }
  }
  return state;
}

bool same_bits(const Values& a, const Values& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

struct Layout {
  int tensor = 1;
  int data = 1;
  bool zero1 = false;
};

constexpr Layout kLayouts[] = {{1, 1, false},
                               {2, 1, false},
                               {4, 1, false},
                               {8, 1, false},
                               {1, 2, false},
                               {2, 2, false},
                               {1, 3, true},
                               {2, 2, true},
                               {4, 2, true},
                               {2, 4, true},
                               {1, 8, true},
                               {1, 7, true}};

std::string text_of(const Layout& layout) {
  return std::to_string(layout.tensor) + "x" + std::to_string(layout.data) +
         (layout.zero1 ? " zero1" : "");
}

// What one rank holds of one parameter.
struct LocalParameter {
  ParameterSpec spec;
  Shard shard;
  Slice range{};    // of the local tensor, whose moments are here
  Values weight{};  // the local tensor
  Values moment{};  // the range
};

std::vector<LocalParameter> local_parameters(const ModelConfig& config,
                                             const Layout& layout,
                                             int rank) {
  std::vector<LocalParameter> parameters;
  for (const ParameterSpec& spec : parameter_table(config)) {
    LocalParameter local{spec, shard_of(spec, config, rank % layout.tensor, layout.tensor)};
    const std::size_t n = local.shard.shape.num_elements();
    const auto d = static_cast<std::size_t>(rank / layout.tensor);
    const auto D = static_cast<std::size_t>(layout.data);
    local.range = layout.zero1 ? Slice{n * d / D, n * (d + 1) / D} : Slice{0, n};
    local.weight.resize(n);
    local.moment.resize(local.range.count());
    parameters.push_back(std::move(local));
  }
  return parameters;
}

// The logical values as this rank holds them, taken element by element.
void cut_out(const LogicalState& state, LocalParameter& local) {
  const auto map = logical_indices(local.shard, local.spec.shape);
  for (std::size_t i = 0; i < map.size(); ++i) {
    local.weight[i] = state.weights.at(local.spec.name)[map[i]];
    if (i >= local.range.begin && i < local.range.end) {
      local.moment[i - local.range.begin] = state.moments.at(local.spec.name)[map[i]];
    }
  }
}

// The pieces that a rank gives: a replicated element only where it is the first to have it.
CheckpointContents rank_contents(std::vector<LocalParameter>& parameters,
                                 const Layout& layout,
                                 int rank) {
  CheckpointContents contents{.step = 1, .documents = {.model = "{}"}};
  const int t = rank % layout.tensor;
  const int d = rank / layout.tensor;
  for (LocalParameter& local : parameters) {
    if (local.spec.cut == TensorCut::none && t > 0) {
      continue;
    }
    const auto add =
        [&](const std::string& group, const ShardPart& part, Values& values, std::size_t first) {
          contents.tensors.push_back({.name = group + local.spec.name,
                                      .data = Tensor(std::span(values)),
                                      .start = part.logical.start,
                                      .logical = local.spec.shape,
                                      .place = LocalPlace{local.shard.shape, part.local, first}});
        };
    for (const ShardPart& part : local.shard.parts) {
      if (d == 0) {
        add("weights/", part, local.weight, 0);
      }
    }
    if (d == 0 || layout.zero1) {
      for (const ShardPart& part : parts_of_range(local.shard, local.range)) {
        add("adam_m/", part, local.moment, local.range.begin);
      }
    }
  }
  return contents;
}

// Every rank writes its part, then rank 0 commits.
void save(const std::string& directory, const LogicalState& state, const Layout& layout) {
  const int size = layout.tensor * layout.data;
  std::vector<ShardList> lists;
  std::optional<ShardWriter> first;
  for (int rank = 0; rank < size; ++rank) {
    auto parameters = local_parameters(small_model(), layout, rank);
    std::ranges::for_each(parameters, [&](LocalParameter& local) { cut_out(state, local); });
    std::optional<ShardWriter> other;
    ShardWriter& writer =
        (rank == 0 ? first : other)
            .emplace(ShardWriter::Options{.directory = directory, .rank = rank, .size = size});
    writer.save(rank_contents(parameters, layout, rank));
    lists.push_back(parse_shard_list(shard_list_text(writer.take())));
  }
  first->commit(lists);
}

void check_load(Checkpoint& checkpoint, const LogicalState& state, const Layout& layout) {
  for (int rank = 0; rank < layout.tensor * layout.data; ++rank) {
    auto expected = local_parameters(small_model(), layout, rank);
    auto loaded = expected;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      cut_out(state, expected[i]);
      LocalParameter& local = loaded[i];
      for (const ShardPart& part : local.shard.parts) {
        checkpoint.read_part("weights/" + local.spec.name,
                             part.logical,
                             Tensor(std::span(local.weight)),
                             {local.shard.shape, part.local});
      }
      for (const ShardPart& part : parts_of_range(local.shard, local.range)) {
        checkpoint.read_part("adam_m/" + local.spec.name,
                             part.logical,
                             Tensor(std::span(local.moment)),
                             {local.shard.shape, part.local, local.range.begin});
      }
      CAPTURE(rank, local.spec.name);
      REQUIRE(same_bits(local.weight, expected[i].weight));
      REQUIRE(same_bits(local.moment, expected[i].moment));
    }
  }
}

}  // namespace

TEST_CASE("what any layout wrote, every layout reads back, bit by bit") {
  const LogicalState state = random_state(small_model());
  std::string sha256;
  for (const Layout& from : kLayouts) {
    const TemporaryDirectory directory;
    save(directory.path(), state, from);
    Checkpoint checkpoint(checkpoint_path(directory.path(), 1));
    checkpoint.verify();
    for (const Layout& to : kLayouts) {
      INFO(text_of(from) << " to " << text_of(to));
      check_load(checkpoint, state, to);
    }
    for (const ParameterSpec& spec : parameter_table(small_model())) {
      Values whole(spec.shape.num_elements());
      checkpoint.read("adam_m/" + spec.name, Tensor(whole.data(), DType::f32, spec.shape));
      REQUIRE(same_bits(whole, state.moments.at(spec.name)));
    }
    const std::string digest = logical_weights_sha256(checkpoint);
    sha256 = sha256.empty() ? digest : sha256;  // the first is one rank's
    REQUIRE(digest == sha256);
  }
}

}  // namespace slackline
