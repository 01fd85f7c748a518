// Compressed training over meshes: the same bits when run again, what it sends to the byte, and
// what is lossless loses nothing.

#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/comm/world.h"
#include "core/tensor/arena.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/plan/class_bytes.h"
#include "parallel/plan/compression_memory.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::Site;

CodecSetting low_rank(int rank, ErrorFeedback feedback) {
  return {.kind = CodecKind::low_rank, .error_feedback = feedback, .rank = rank};
}

CodecSetting sparse(CodecKind kind, ErrorFeedback feedback, DType values = DType::f32) {
  return {.kind = kind, .error_feedback = feedback, .ratio = 0.1, .values = values};
}

CodecSetting quantize(int bits, ErrorFeedback feedback, ScaleOf scale = ScaleOf::channel) {
  return {.kind = CodecKind::quantize, .error_feedback = feedback, .bits = bits, .scale = scale};
}

// Every kind that the site takes, with each way of error feedback somewhere.
std::vector<CodecSetting> codecs(const std::string& site) {
  CodecSetting stochastic = quantize(2, ErrorFeedback::none, ScaleOf::group);
  stochastic.rounding = Rounding::stochastic;
  CodecSetting two_shot = quantize(4, ErrorFeedback::immediate);
  two_shot.sum = site.starts_with("pipeline") ? SumWay::gather : SumWay::two_shot;
  CodecSetting narrow = low_rank(3, ErrorFeedback::immediate);
  narrow.factors = DType::bf16;
  return {low_rank(2, ErrorFeedback::lazy),
          narrow,
          sparse(CodecKind::top_k, ErrorFeedback::lazy),
          sparse(CodecKind::top_k, ErrorFeedback::immediate, DType::bf16),
          sparse(CodecKind::random_k, ErrorFeedback::none),
          sparse(CodecKind::random_k, ErrorFeedback::immediate),
          quantize(8, ErrorFeedback::none, ScaleOf::token),
          quantize(4, ErrorFeedback::lazy),
          stochastic,
          two_shot,
          {.kind = CodecKind::cast, .error_feedback = ErrorFeedback::immediate}};
}

struct Layout {
  const char* name = "";
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  bool sequence_parallel = false;
  DataStrategy strategy = DataStrategy::replicate;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  DType precision = DType::f32;
};

const std::vector<Layout> kLayouts = {
    {.name = "2 x 2 x 2 zero1, sequence parallel",
     .tensor = 2,
     .pipeline = 2,
     .data = 2,
     .sequence_parallel = true,
     .strategy = DataStrategy::zero1},
    {.name = "pipeline 4, gpipe", .pipeline = 4, .schedule = ScheduleName::gpipe},
    {.name = "pipeline 2, data 3, zb_h1",
     .pipeline = 2,
     .data = 3,
     .schedule = ScheduleName::zb_h1},
    {.name = "pipeline 2 of 2 chunks, data 2, bf16",
     .pipeline = 2,
     .data = 2,
     .schedule = ScheduleName::interleaved,
     .precision = DType::bf16},
    {.name = "tensor 2, pipeline 2", .tensor = 2, .pipeline = 2},
    {.name = "data 4", .data = 4},
    {.name = "data 3, zero1", .data = 3, .strategy = DataStrategy::zero1}};

MeshRun run_of(const Layout& layout) {
  MeshRun run{.model = {.layers = 4,
                        .hidden = 24,
                        .heads = 4,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 96,
                        .dropout = 0.1F}};
  run.parallel.tensor = layout.tensor;
  run.parallel.pipeline = layout.pipeline;
  run.parallel.data = layout.data;
  run.parallel.sequence_parallel = layout.sequence_parallel;
  run.parallel.data_strategy = layout.strategy;
  run.parallel.schedule = layout.schedule;
  run.parallel.chunks = layout.schedule == ScheduleName::interleaved ? 2 : 1;
  run.precision = layout.precision;
  run.global_batch = run.micro_batch * layout.data * 4;
  return run;
}

std::vector<std::string> sites_of(const Layout& layout) {
  std::vector<std::string> sites;
  if (layout.pipeline > 1) {
    sites.insert(sites.end(), {"pipeline_backward", "pipeline_forward"});
  }
  if (layout.data > 1) {
    sites.emplace_back("data_gradient");
  }
  if (layout.pipeline > 1 || layout.data > 1) {
    sites.emplace_back("embedding");
  }
  return sites;
}

MeshRun compressed(MeshRun run, const std::string& site, const CodecSetting& setting) {
  run.compress.policy = CompressionPolicy::all;
  run.compress.sites[site] = setting;
  return run;
}

void require_equal(const MeshRunResult& a, const MeshRunResult& b) {
  REQUIRE(a.losses == b.losses);
  REQUIRE(a.norms == b.norms);
  REQUIRE(a.evaluation == b.evaluation);
  REQUIRE(a.weights == b.weights);
}

// What a run has learned of the first step's batch in five steps, as a share of what it learns
// without compression.
double learned(const MeshRunResult& run, const MeshRunResult& plain) {
  return (plain.losses.front() - run.evaluation) / (plain.losses.front() - plain.evaluation);
}

// A run that learns nothing has 0. Bf16 and 8-bit integers keep 0.997 and more over all layouts and
// sites. Codecs that leave out most of a gradient keep 0.37 and more (random_k without error
// feedback), of an activation 0.12 and more (rank 2 through three boundaries).
double least_learned(const std::string& site, const CodecSetting& setting) {
  const bool is_fine =
      setting.kind == CodecKind::cast || (setting.kind == CodecKind::quantize && setting.bits == 8);
  return is_fine ? 0.99 : site == "pipeline_forward" ? 0.1 : 0.3;
}

// Every codec on every site of a layout: trains, twice alike, and not as without compression.
void require_repeatable(const Layout& layout) {
  const MeshRunResult plain = run_mesh(run_of(layout));
  for (const std::string& site : sites_of(layout)) {
    for (const CodecSetting& setting : codecs(site)) {
      INFO(layout.name << ", " << site << ", " << short_text(setting));
      const MeshRun run = compressed(run_of(layout), site, setting);
      const MeshRunResult first = run_mesh(run);
      require_equal(first, run_mesh(run));
      const bool changes_nothing = setting.kind == CodecKind::cast &&
                                   layout.precision == DType::bf16 && site.starts_with("pipeline");
      REQUIRE((first.weights == plain.weights) == changes_nothing);
      REQUIRE(learned(first, plain) > least_learned(site, setting));
    }
  }
}

// What ranks send in a step on the axes that codecs change.
struct Sent {
  std::size_t pipeline = 0;
  std::size_t gradients = 0;  // data axis and table
};

Sent sent_in_a_step(const MeshRun& run) {
  const auto ranks = static_cast<std::size_t>(run.parallel.num_ranks());
  std::vector<Sent> sent(ranks);
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    const auto sums = [&] {
      return groups.data->bytes_sent() + (groups.table == nullptr ? 0 : groups.table->bytes_sent());
    };
    const std::size_t before = sums();
    RankBatches batches(run, model, 1);
    static_cast<void>(model.make_gradients(batches.micro_batches()));
    Sent& mine = sent[static_cast<std::size_t>(world.rank())];
    mine.pipeline = groups.forward->bytes_sent() + groups.backward->bytes_sent();
    mine.gradients = sums() - before;
  });
  Sent sum;
  for (const Sent& rank : sent) {
    sum.pipeline += rank.pipeline;
    sum.gradients += rank.gradients;
  }
  return sum;
}

struct Saved {
  std::size_t bytes = 0;
  std::size_t pieces = 0;
  std::size_t planned = 0;
};

// Returns what each rank's part of a checkpoint holds of its codecs.
std::vector<Saved> saved_by_ranks(const MeshRun& run) {
  std::vector<Saved> saved(static_cast<std::size_t>(run.parallel.num_ranks()));
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    const MeshModel::Options options = run.options();
    MeshModel model(options, groups);
    Saved& mine = saved[static_cast<std::size_t>(world.rank())];
    for (const ChannelState& state : model.channels().state()) {
      mine.bytes += state.saved ? state.region.shape.num_elements() * sizeof(float) : 0;
      mine.pieces += state.saved ? 1 : 0;
    }
    mine.planned =
        compression_memory(options.job, {options.job, place_of(groups)}, options.compression, 1)
            .saved;
  });
  return saved;
}

Sent planned(const MeshRun& run) {
  const MeshModel::Options options = run.options();
  Sent sum;
  for (const ClassBytes& row :
       class_bytes(MeshLists(options.job), options.compression.front().plan)) {
    const bool once = schedule::is_once_a_step(row.members.phase);
    (once ? sum.gradients : sum.pipeline) += row.sent;
  }
  return sum;
}

}  // namespace

TEST_CASE("every codec on every site trains over tensor, pipeline and data alike each time") {
  require_repeatable(kLayouts.front());
}

TEST_CASE("every codec on every site trains over other layouts alike each time", "[slow]") {
  for (std::size_t i = 1; i < kLayouts.size(); ++i) {
    require_repeatable(kLayouts[i]);
  }
}

TEST_CASE("gradients in units of moments train over every layout alike each time") {
  for (const Layout& layout : kLayouts) {
    if (layout.strategy != DataStrategy::replicate || layout.data == 1) {
      continue;
    }
    for (const std::string site : {"data_gradient", "embedding"}) {
      INFO(layout.name << ", " << site);
      CodecSetting setting = quantize(2, ErrorFeedback::immediate, ScaleOf::both);
      const MeshRun plain_units = compressed(run_of(layout), site, setting);
      setting.units = Units::moments;
      const MeshRun run = compressed(run_of(layout), site, setting);
      const MeshRunResult first = run_mesh(run);
      const MeshRunResult second = run_mesh(run);
      REQUIRE(first.losses == second.losses);
      REQUIRE(first.weights == second.weights);
      REQUIRE(first.losses != run_mesh(plain_units).losses);
    }
  }
}

TEST_CASE("ranks send what the codecs' formulas say, to the byte") {
  for (const Layout& layout : kLayouts) {
    for (const std::string& site : sites_of(layout)) {
      for (const CodecSetting& setting : codecs(site)) {
        INFO(layout.name << ", " << site << ", " << short_text(setting));
        MeshRun run = compressed(run_of(layout), site, setting);
        run.model.dropout = 0.0F;
        const Sent due = planned(run);
        const Sent sent = sent_in_a_step(run);
        REQUIRE(sent.pipeline == due.pipeline);
        REQUIRE(sent.gradients == due.gradients);
      }
    }
  }
}

TEST_CASE("ranks save as much of what codecs carry on as a plan of memory says") {
  for (const Layout& layout : kLayouts) {
    if (layout.tensor > 1) {
      continue;  // of what all tensor ranks have, the first one saves what is counted on each
    }
    for (const std::string& site : sites_of(layout)) {
      for (const CodecSetting& setting : codecs(site)) {
        INFO(layout.name << ", " << site << ", " << short_text(setting));
        const MeshRun run = compressed(run_of(layout), site, setting);
        for (const Saved& rank : saved_by_ranks(run)) {
          // Memory of residuals begins at multiples of a cache line.
          REQUIRE(rank.planned >= rank.bytes);
          REQUIRE(rank.planned <= rank.bytes + rank.pieces * Arena::kAlignment);
        }
      }
    }
  }
}

// Other stages have other buckets.
TEST_CASE("sums of integers have the same bits over pipeline splits, whichever way they are made") {
  for (const SumWay way : {SumWay::gather, SumWay::two_shot}) {
    CodecSetting setting = quantize(4, ErrorFeedback::immediate);
    setting.rounding = Rounding::stochastic;
    setting.sum = way;
    const auto result = [&](int pipeline, int chunks) {
      MeshRun run = run_of({.pipeline = pipeline, .data = 3});
      run.parallel.schedule = chunks > 1 ? ScheduleName::interleaved : ScheduleName::one_f_one_b;
      run.parallel.chunks = chunks;
      return run_mesh(compressed(run, "data_gradient", setting));
    };
    INFO(short_text(setting));
    const MeshRunResult expected = result(1, 1);
    require_equal(result(2, 1), expected);
    require_equal(result(2, 2), expected);
  }
}

// What a boundary sends without compression are bf16 elements there, which a cast does not shrink.
TEST_CASE("under bf16 a boundary's codec is used where it sends less than plain bf16") {
  const auto sent_with = [](const CodecSetting& setting, const std::string& site) {
    MeshRun run = run_of({.pipeline = 2, .precision = DType::bf16});
    run.model.dropout = 0.0F;
    return sent_in_a_step(compressed(run, site, setting)).pipeline;
  };
  MeshRun plain = run_of({.pipeline = 2, .precision = DType::bf16});
  plain.model.dropout = 0.0F;
  const std::size_t raw = sent_in_a_step(plain).pipeline;
  CodecSetting wide = sparse(CodecKind::top_k, ErrorFeedback::none);
  wide.ratio = 0.5;  // 2.3 bytes an element: more than in bf16, less than in fp32
  const CodecSetting large = low_rank(8, ErrorFeedback::none);  // 2.7 bytes an element
  for (const char* site : {"pipeline_forward", "pipeline_backward"}) {
    INFO(site);
    CHECK(sent_with({.kind = CodecKind::cast}, site) == raw);
    CHECK(sent_with(wide, site) == raw);
    CHECK(sent_with(large, site) == raw);
    CHECK(sent_with(quantize(8, ErrorFeedback::none), site) < raw);
    wide.always = true;
    CHECK(sent_with(wide, site) > raw);
    wide.always = false;
  }
}

TEST_CASE("policy none is training without compression") {
  for (const Layout& layout : kLayouts) {
    INFO(layout.name);
    MeshRun none = run_of(layout);
    none.steps = 2;
    none.compress.sites["pipeline_backward"] = low_rank(2, ErrorFeedback::lazy);
    MeshRun without = run_of(layout);
    without.steps = 2;
    require_equal(run_mesh(none), run_mesh(without));
  }
}

// A factor of full rank is a change of basis: it costs fp32 rounding of some hundred products, in
// gradients and in activations. Later steps are compared by their losses alone: AdamW turns
// rounding of gradients near zero into whole updates.
TEST_CASE("low rank that is not low loses nothing but rounding") {
  for (const Layout& layout : {kLayouts[0], kLayouts[1], kLayouts[4], kLayouts[5]}) {
    MeshRun plain = run_of(layout);
    plain.model.dropout = 0.0F;
    const MeshRunResult expected = run_mesh(plain);
    for (const std::string& site : sites_of(layout)) {
      INFO(layout.name << ", " << site);
      CodecSetting setting = low_rank(1000, ErrorFeedback::none);
      setting.always = true;
      const MeshRunResult found = run_mesh(compressed(plain, site, setting));
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        REQUIRE(found.losses[step] == Approx(expected.losses[step]).epsilon(1e-5));
      }
      REQUIRE(found.norms.front() == Approx(expected.norms.front()).epsilon(1e-5));
      REQUIRE(gradient_distance(found, expected) < 1e-5);
    }
  }
}

TEST_CASE("the fused table sync beside compressed gradients is the separate one, bit for bit") {
  for (const int tensor : {1, 2}) {
    for (const DataStrategy strategy : {DataStrategy::replicate, DataStrategy::zero1}) {
      INFO("tensor " << tensor << (strategy == DataStrategy::zero1 ? ", zero1" : ""));
      MeshRun run =
          compressed(run_of({.tensor = tensor, .pipeline = 2, .data = 2, .strategy = strategy}),
                     "data_gradient",
                     low_rank(2, ErrorFeedback::immediate));
      const MeshRunResult fused = run_mesh(run);
      run.parallel.embedding_sync = EmbeddingSync::separate;
      require_equal(run_mesh(run), fused);
    }
  }
}

TEST_CASE("warm-up steps are uncompressed and state begins after them") {
  MeshRun run =
      compressed(run_of(kLayouts[0]), "pipeline_backward", low_rank(2, ErrorFeedback::lazy));
  run.compress.warmup_steps = 3;
  const MeshRunResult warmed = run_mesh(run);
  const MeshRunResult plain = run_mesh(run_of(kLayouts[0]));
  for (std::size_t step = 0; step < 4; ++step) {  // step 4's loss is of weights of step 3
    REQUIRE(warmed.losses[step] == plain.losses[step]);
  }
  REQUIRE(warmed.losses[4] != plain.losses[4]);
}

}  // namespace slackline::testing
