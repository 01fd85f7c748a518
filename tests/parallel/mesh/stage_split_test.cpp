#include "parallel/mesh/stage_split.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

ModelConfig model_of(int layers, int vocab) {
  return {.layers = layers, .hidden = 16, .heads = 4, .sequence = 8, .vocab = vocab, .ffn = 64};
}

std::vector<int> counts_of(const std::vector<ChunkSlice>& stages) {
  std::vector<int> counts;
  counts.reserve(stages.size());
  for (const ChunkSlice& stage : stages) {
    counts.push_back(stage.num_layers());
  }
  return counts;
}

std::vector<int> balanced(int layers, int vocab, int stages) {
  return counts_of(split_layers(model_of(layers, vocab), {.pipeline = stages}));
}

// Multiply-adds of a token in the stage, counted from the shapes.
double work_of(const ModelConfig& m, const std::vector<int>& counts, std::size_t stage) {
  const double C = m.hidden;
  const double layer = 3.0 * C * C + C * C + 2.0 * C * m.ffn + C * m.sequence;
  const double ends = (stage == 0 ? C : 0.0) + (stage + 1 == counts.size() ? C * m.vocab : 0.0);
  return counts[stage] * layer + ends;
}

double largest_work(const ModelConfig& model, const std::vector<int>& counts) {
  double largest = 0.0;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    largest = std::max(largest, work_of(model, counts, stage));
  }
  return largest;
}

// Every way to put the layers on `stages`, each at least one; the least largest work of all.
double least_work(const ModelConfig& model, std::vector<int>& counts, int left, int stages) {
  if (stages == 1) {
    counts.push_back(left);
    const double work = largest_work(model, counts);
    counts.pop_back();
    return work;
  }
  double least = 1e300;
  for (int count = 1; count <= left - (stages - 1); ++count) {
    counts.push_back(count);
    least = std::min(least, least_work(model, counts, left - count, stages - 1));
    counts.pop_back();
  }
  return least;
}

}  // namespace

TEST_CASE("layers that divide are spread evenly where the head is small") {
  CHECK(balanced(8, 1, 4) == std::vector<int>{2, 2, 2, 2});
  CHECK(balanced(30, 1, 4) == std::vector<int>{7, 8, 8, 7});  // the ends have a little more to do
  CHECK(balanced(5, 1, 4) == std::vector<int>{1, 1, 2, 1});   // of equal splits a later one
}

TEST_CASE("the head's stage has fewer layers, by what the head costs") {
  // A layer of 16 channels costs as much as a vocabulary of 200.
  CHECK(balanced(9, 200, 2) == std::vector<int>{5, 4});
  CHECK(balanced(10, 400, 3) == std::vector<int>{4, 4, 2});
  CHECK(balanced(4, 100000, 4) == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("no other split has a smaller largest stage") {
  for (const int layers : {1, 2, 5, 9, 12}) {
    for (const int vocab : {1, 50, 200, 333, 1000}) {
      for (int stages = 1; stages <= std::min(layers, 5); ++stages) {
        INFO(layers << " layers, vocabulary " << vocab << ", " << stages << " stages");
        const ModelConfig model = model_of(layers, vocab);
        const std::vector<int> counts = balanced(layers, vocab, stages);
        std::vector<int> none;
        CHECK(std::accumulate(counts.begin(), counts.end(), 0) == layers);
        CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
        CHECK(largest_work(model, counts) ==
              Approx(least_work(model, none, layers, stages)).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("given layers are taken as they are, and the ends are on the first and last stage") {
  const std::vector<ChunkSlice> stages =
      split_layers(model_of(8, 50), {.pipeline = 4, .stage_layers = {1, 4, 1, 2}});
  CHECK(stages == std::vector<ChunkSlice>{{.first_layer = 0, .last_layer = 1, .embedding = true},
                                          {.first_layer = 1, .last_layer = 5},
                                          {.first_layer = 5, .last_layer = 6},
                                          {.first_layer = 6, .last_layer = 8, .head = true}});
}

TEST_CASE("one stage is the whole model") {
  const ModelConfig model = model_of(3, 50);
  CHECK(split_layers(model, {}) == std::vector<ChunkSlice>{whole_chunk(model)});
}

TEST_CASE("the chunks of a rank are a pipeline's length apart") {
  const std::vector<ChunkSlice> stages = split_layers(
      model_of(6, 1), {.pipeline = 2, .schedule = ScheduleName::interleaved, .chunks = 3});
  REQUIRE(stages.size() == 6);
  CHECK(chunks_of_rank(stages, 0, 2) == std::vector<ChunkSlice>{stages[0], stages[2], stages[4]});
  CHECK(chunks_of_rank(stages, 1, 2) == std::vector<ChunkSlice>{stages[1], stages[3], stages[5]});
}

}  // namespace slackline
