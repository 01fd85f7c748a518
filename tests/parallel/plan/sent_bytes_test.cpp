// Bytes by axis against docs/schedule.md, "Bytes", written out for small steps. That they are what
// ranks send, on every layout, is tests/equivalence/bytes_test.cpp.

#include "parallel/plan/sent_bytes.h"

#include "tests/support/catch.h"

namespace slackline {

namespace {

constexpr std::size_t kN = 8;                 // tokens of a micro-batch
constexpr std::size_t kC = 16;                // channels
constexpr std::size_t kF = 64;                // ffn
constexpr std::size_t kV = 12;                // vocabulary
constexpr std::size_t kActivation = kN * kC;  // elements

MeshJob job(int layers, const ParallelConfig& parallel, int num_micro_batches = 1) {
  return {.model = {.layers = layers,
                    .hidden = kC,
                    .heads = 4,
                    .sequence = 4,
                    .vocab = kV,
                    .ffn = kF,
                    .tie_embeddings = false},
          .parallel = parallel,
          .precision = DType::bf16,
          .micro_batch = {.B = 2, .T = 4},
          .num_micro_batches = num_micro_batches};
}

// Matrices and biases of a layer on one tensor rank of one, all multiples of a cache line.
constexpr std::size_t kLayer = 3 * kC * kC + 3 * kC + kC * kC + kC + kF * kC + kF + kF * kC + kC;
constexpr std::size_t kBiases = 3 * kC + kC + kF + kC;  // of a layer

AxisBytes bytes_of(const MeshJob& job) {
  return step_traffic(MeshLists(job), {}).all.sent;
}

}  // namespace

TEST_CASE("one rank sends nothing") {
  CHECK(bytes_of(job(3, {})) == AxisBytes{});
}

TEST_CASE("the tensor axis makes four sums a layer, one for the embedding and one for the head") {
  const std::size_t statistics = 2 * kN * 3 * 4;  // t (t - 1) N 3 f32
  // Partial sums are fp32, embedded tokens bf16; two ranks send all of it once each.
  MeshJob two = job(3, {.tensor = 2}, 5);
  CHECK(bytes_of(two)[kTensorAxis] == 5 * (2 * kActivation * (4 * (3 * 4 + 1) + 2) + statistics));
  two.model.recompute = Recompute::block;
  CHECK(bytes_of(two)[kTensorAxis] == 5 * (2 * kActivation * (4 * (3 * 5 + 1) + 2) + statistics));
}

TEST_CASE("sequence parallelism gathers six times a layer and sums the norms' gradients") {
  const std::size_t sums =
      std::size_t{3 * 4 + 1} * 4 + 2;  // bytes an element, each half of an all-reduce
  const std::size_t gathers = std::size_t{3 * 6 + 1 + 1} * 2;
  const std::size_t norms = 2 * kC * (4 * 3 + 2) * 4;  // over two ranks: all of it, each
  CHECK(bytes_of(job(3, {.tensor = 2, .sequence_parallel = true}))[kTensorAxis] ==
        kActivation * (sums + gathers) + 2 * kN * 3 * 4 + norms);
}

TEST_CASE("each boundary carries an activation and a gradient of every micro-batch") {
  CHECK(bytes_of(job(3, {.pipeline = 3, .data = 2}, 4))[kPipelineAxis] ==
        2 * kActivation * 2 * 2 * 4 * 2);
}

TEST_CASE("data ranks reduce the gradients of their stage, and zero1 gathers its weights") {
  const std::size_t tables = 4 * kC + 2 * kV * kC;  // positions, two tables
  const std::size_t norms = (4 * 2 + 2) * kC;
  const std::size_t elements = 2 * kLayer + tables + norms;
  CHECK(bytes_of(job(2, {.data = 2}))[kDataAxis] == elements * 4 * 2);
  const ParallelConfig zero1{.data = 3, .data_strategy = DataStrategy::zero1};
  // Two other ranks get gradients in fp32, and weights in bf16 but for norms and biases, of which
  // each begins at a cache line of bf16.
  constexpr std::size_t kLine = 32;
  const std::size_t vectors = (4 * 2 + 2) * kLine + 2 * (2 * kLine + kLine + kF + kLine);
  const std::size_t matrices = elements - norms - 2 * kBiases;
  CHECK(bytes_of(job(2, zero1))[kDataAxis] == 2 * (matrices * (4 + 2) + vectors * (4 + 4)));
}

TEST_CASE("a tied table joins both end stages at once, or one pair after the other") {
  MeshJob tied = job(2, {.pipeline = 2, .data = 2}, 2);
  tied.model.tie_embeddings = true;
  constexpr std::size_t kTable = kV * kC * 4;  // bytes, below those that go in slices
  CHECK(bytes_of(tied)[kEmbeddingAxis] == 4 * kTable * 3);
  const std::size_t data = bytes_of(tied)[kDataAxis];
  tied.parallel.embedding_sync = EmbeddingSync::separate;
  CHECK(bytes_of(tied)[kEmbeddingAxis] == 2 * kTable * 2);
  CHECK(bytes_of(tied)[kDataAxis] == data + 2 * kTable * 2);
}

}  // namespace slackline
