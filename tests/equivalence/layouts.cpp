#include "tests/equivalence/layouts.h"

#include <deque>
#include <tuple>

#include <fmt/format.h>

namespace slackline::testing {

namespace {

// 67 ids divide by neither tensor degree; 8 micro-batches of 2 sequences on one data rank.
MeshRun small_run() {
  return {.model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96}};
}

MeshRun small_run(int tensor, int pipeline, int data) {
  MeshRun run = small_run();
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  return run;
}

// Builds a list of variants of small_run.
class LayoutList {
 public:
  // A layout by its degrees, to be changed further.
  MeshRun& add(const std::string& name, int tensor, int pipeline, int data) {
    layouts_.push_back({fmt::format("{} t{} p{} d{}", name, tensor, pipeline, data),
                        small_run(tensor, pipeline, data)});
    return layouts_.back().run;
  }

  [[nodiscard]] std::vector<Layout> take() const { return {layouts_.begin(), layouts_.end()}; }

 private:
  std::deque<Layout> layouts_;  // references to elements last
};

void set_interleaved(MeshRun& run) {
  run.model.layers = 8;
  run.parallel.schedule = ScheduleName::interleaved;
  run.parallel.chunks = 2;
}

void add_schedules(LayoutList& list) {
  list.add("gpipe", 1, 4, 1).parallel.schedule = ScheduleName::gpipe;
  list.add("gpipe", 2, 2, 2).parallel.schedule = ScheduleName::gpipe;
  set_interleaved(list.add("interleaved", 1, 2, 1));
  set_interleaved(list.add("interleaved", 1, 4, 2));
  set_interleaved(list.add("interleaved", 2, 2, 2));
  list.add("zb_h1", 1, 4, 1).parallel.schedule = ScheduleName::zb_h1;
  MeshRun& zb_sp = list.add("zb_h1, sequence parallel", 2, 2, 2);
  zb_sp.parallel.schedule = ScheduleName::zb_h1;
  zb_sp.parallel.sequence_parallel = true;
  list.add("blocking", 1, 4, 2).parallel.transfers = schedule::Transfers::blocking;
  MeshRun& blocking_gpipe = list.add("blocking gpipe", 2, 4, 1);
  blocking_gpipe.parallel.transfers = schedule::Transfers::blocking;
  blocking_gpipe.parallel.schedule = ScheduleName::gpipe;
  MeshRun& blocking_ring = list.add("blocking interleaved", 1, 4, 1);
  set_interleaved(blocking_ring);
  blocking_ring.parallel.transfers = schedule::Transfers::blocking;
  MeshRun& blocking_zb = list.add("blocking zb_h1", 1, 2, 2);
  blocking_zb.parallel.transfers = schedule::Transfers::blocking;
  blocking_zb.parallel.schedule = ScheduleName::zb_h1;
}

void add_tensor_options(LayoutList& list) {
  for (const auto& [tensor, pipeline, data] :
       {std::tuple{2, 1, 1}, {4, 1, 1}, {4, 2, 1}, {2, 2, 2}, {2, 4, 1}, {4, 1, 2}}) {
    list.add("sequence parallel", tensor, pipeline, data).parallel.sequence_parallel = true;
  }
  MeshRun& untied = list.add("sequence parallel, untied", 4, 2, 1);
  untied.parallel.sequence_parallel = true;
  untied.model.tie_embeddings = false;
}

void add_data_options(LayoutList& list) {
  for (const bool tied : {true, false}) {
    for (const EmbeddingSync sync : {EmbeddingSync::fused, EmbeddingSync::separate}) {
      MeshRun& run = list.add(fmt::format("zero1, {}, {}",
                                          tied ? "tied" : "untied",
                                          sync == EmbeddingSync::fused ? "fused" : "separate"),
                              2,
                              2,
                              2);
      run.parallel.data_strategy = DataStrategy::zero1;
      run.parallel.embedding_sync = sync;
      run.model.tie_embeddings = tied;
    }
  }
  list.add("zero1", 1, 1, 4).parallel.data_strategy = DataStrategy::zero1;
  list.add("zero1", 1, 2, 4).parallel.data_strategy = DataStrategy::zero1;
  MeshRun& zero1_sp = list.add("zero1, sequence parallel", 2, 1, 4);
  zero1_sp.parallel.data_strategy = DataStrategy::zero1;
  zero1_sp.parallel.sequence_parallel = true;
  MeshRun& separate = list.add("separate", 1, 2, 4);
  separate.parallel.embedding_sync = EmbeddingSync::separate;
  list.add("groups", 2, 1, 4).parallel.group = 2;
  MeshRun& groups_zero1 = list.add("groups, zero1, sequence parallel", 2, 1, 4);
  groups_zero1.parallel.group = 2;
  groups_zero1.parallel.data_strategy = DataStrategy::zero1;
  groups_zero1.parallel.sequence_parallel = true;
  MeshRun& groups_separate = list.add("groups, separate", 1, 2, 4);
  groups_separate.parallel.group = 2;
  groups_separate.parallel.embedding_sync = EmbeddingSync::separate;
  list.add("untied", 2, 2, 2).model.tie_embeddings = false;
  list.add("untied", 1, 4, 2).model.tie_embeddings = false;
}

void add_shapes(LayoutList& list) {
  MeshRun& uneven = list.add("uneven stages", 1, 4, 1);
  uneven.model.layers = 8;
  uneven.parallel.stage_layers = {1, 4, 1, 2};
  MeshRun& uneven_chunks = list.add("uneven chunks", 1, 2, 2);
  set_interleaved(uneven_chunks);
  uneven_chunks.parallel.stage_layers = {3, 1, 2, 2};
  MeshRun& deep = list.add("30 layers", 1, 4, 1);
  deep.model.layers = 30;
  deep.model.hidden = 16;
  deep.model.ffn = 64;
  MeshRun& deep_given = list.add("30 layers, given", 2, 4, 1);
  deep_given.model = deep.model;
  deep_given.parallel.stage_layers = {8, 8, 8, 6};
  list.add("2 micro-batches", 1, 4, 1).global_batch = 4;
  list.add("1 micro-batch", 1, 4, 2).global_batch = 4;
  MeshRun& few_zb = list.add("2 micro-batches, zb_h1", 2, 4, 1);
  few_zb.global_batch = 4;
  few_zb.parallel.schedule = ScheduleName::zb_h1;
}

void add_model_options(LayoutList& list) {
  for (const bool sequence_parallel : {false, true}) {
    MeshRun& run =
        list.add(sequence_parallel ? "recompute, sequence parallel" : "recompute", 2, 2, 2);
    run.model.recompute = Recompute::block;
    run.parallel.sequence_parallel = sequence_parallel;
    MeshRun& dropout =
        list.add(sequence_parallel ? "dropout, sequence parallel" : "dropout", 4, 2, 1);
    dropout.model.dropout = 0.1F;
    dropout.parallel.sequence_parallel = sequence_parallel;
  }
  MeshRun& all = list.add("dropout, recompute, zero1, interleaved", 2, 2, 2);
  set_interleaved(all);
  all.model.dropout = 0.1F;
  all.model.recompute = Recompute::block;
  all.parallel.data_strategy = DataStrategy::zero1;
  all.parallel.sequence_parallel = true;
  list.add("dropout", 1, 2, 4).model.dropout = 0.1F;
}

}  // namespace

std::vector<Layout> plain_layouts() {
  LayoutList list;
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int data : {1, 2, 4}) {
        const int ranks = tensor * pipeline * data;
        if (ranks > 1 && ranks <= 8) {
          list.add("1f1b", tensor, pipeline, data);
        }
      }
    }
  }
  return list.take();
}

std::vector<Layout> special_layouts() {
  LayoutList list;
  add_schedules(list);
  add_tensor_options(list);
  add_data_options(list);
  add_shapes(list);
  add_model_options(list);
  return list.take();
}

std::vector<Layout> quick_layouts() {
  LayoutList list;
  list.add("1f1b", 1, 2, 1);
  MeshRun& sharded = list.add("zero1, sequence parallel", 2, 2, 2);
  sharded.parallel.data_strategy = DataStrategy::zero1;
  sharded.parallel.sequence_parallel = true;
  set_interleaved(list.add("interleaved", 1, 2, 2));
  list.add("zb_h1", 2, 2, 1).parallel.schedule = ScheduleName::zb_h1;
  list.add("untied", 1, 2, 2).model.tie_embeddings = false;
  MeshRun& groups = list.add("groups, zero1", 1, 2, 4);
  groups.parallel.group = 2;
  groups.parallel.data_strategy = DataStrategy::zero1;
  MeshRun& masked = list.add("dropout, recompute, few micro-batches", 2, 4, 1);
  masked.model.dropout = 0.1F;
  masked.model.recompute = Recompute::block;
  masked.global_batch = 4;
  return list.take();
}

MeshRun grouped_run(int tensor, int pipeline, int data, int group) {
  MeshRun run{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96}};
  run.steps = 3;
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  run.parallel.group = group;
  return run;
}

MeshRun on_one_rank(const MeshRun& run) {
  MeshRun alone = run;
  alone.parallel = {};
  alone.model.recompute = Recompute::none;
  return alone;
}

MeshRun same_bits(const MeshRun& run) {
  MeshRun simple = on_one_rank(run);
  simple.parallel.tensor = run.parallel.tensor;
  simple.parallel.data = run.parallel.data;
  simple.parallel.group = run.parallel.group;
  simple.parallel.sequence_parallel = run.parallel.sequence_parallel;
  return simple;
}

}  // namespace slackline::testing
