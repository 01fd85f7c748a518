#include "parallel/predict/byte_formulas.h"

#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

ByteInputs small() {
  return {.layers = {3}, .B = 2, .T = 4, .C = 16, .F = 64, .V = 12, .element_bytes = 2};
}

constexpr std::size_t kActivation = std::size_t{2} * 4 * 16 * 2;  // bytes of (N, C)

// Elements r of [n r / size, n (r + 1) / size), summed over what each rank sends.
std::size_t counted_reduce_scatter(std::size_t n, std::size_t size) {
  std::size_t sent = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t owner = 0; owner < size; ++owner) {
      sent += owner == rank ? 0 : n * (owner + 1) / size - n * owner / size;
    }
  }
  return sent;
}

}  // namespace

TEST_CASE("collectives in closed form equal the slices counted one by one") {
  for (const std::size_t n : {0, 1, 7, 16, 1001}) {
    for (const int ranks : {1, 2, 3, 8}) {
      const std::size_t counted = counted_reduce_scatter(n, static_cast<std::size_t>(ranks));
      CHECK(reduce_scatter_bytes(n, 4, ranks).value == 4 * counted);
      CHECK(all_gather_bytes(n, 4, ranks).value == 4 * counted);
      CHECK(all_reduce_bytes(n, 4, ranks).value == 8 * counted);
    }
  }
}

TEST_CASE("one rank sends nothing") {
  CHECK(step_bytes(small()) == AxisBytes{});
}

TEST_CASE("the tensor axis makes four sums a layer, one for the embedding and one for the head") {
  ByteInputs inputs = small();
  inputs.t = 2;
  inputs.m = 5;
  const std::size_t statistics =
      std::size_t{2} * 2 * 4 * 3 * 4;  // gathered by two ranks: t (t - 1) N 3 f32
  // Partial sums are fp32, twice as large as activations; embedded tokens are none.
  CHECK(step_bytes(inputs).tensor.value ==
        5 * (kActivation * (2 * (3 * 4 + 1) + 1) * 2 + statistics));
  inputs.recompute = RecomputeBlocks::on;
  CHECK(step_bytes(inputs).tensor.value ==
        5 * (kActivation * (2 * (3 * 5 + 1) + 1) * 2 + statistics));
}

TEST_CASE("sequence parallelism gathers six times a layer and sums the norms' gradients") {
  ByteInputs inputs = small();
  inputs.t = 2;
  inputs.sequence_parallel = SequenceParallel::on;
  const std::size_t statistics = std::size_t{2} * 2 * 4 * 3 * 4;
  const std::size_t norms = std::size_t{2} * (3 * 4 * 16 + 2 * 16) * 4;
  CHECK(layer_transfers(inputs) == TensorTransfers{.sums = 4, .gathers = 6});
  const std::size_t sums = 2 * (3 * 4 + 1) + 1;
  const std::size_t gathers = 3 * 6 + 2;
  CHECK(step_bytes(inputs).tensor.value == kActivation * (sums + gathers) + statistics + norms);
}

TEST_CASE("each boundary carries a micro-batch's activations once in each direction") {
  ByteInputs inputs = small();
  inputs.p = 2;
  inputs.d = 3;
  inputs.m = 4;
  inputs.layers = {1, 0, 1, 1};  // two chunks a rank: three boundaries
  CHECK(step_bytes(inputs).pipeline.value == kActivation * 3 * 4 * 3 * 2);
  CHECK(step_bytes(inputs).tensor.value == 0);
  // Tensor ranks send slices of the same sum and put them together on their own axis.
  inputs.t = 2;
  CHECK(step_bytes(inputs).pipeline.value == kActivation * 3 * 4 * 3 * 2);
  ByteInputs whole = inputs;
  whole.p = 1;
  whole.layers = {3};
  CHECK(step_bytes(inputs).tensor.value - step_bytes(whole).tensor.value ==
        kActivation * 3 * 4 * 3 * 2);
}

TEST_CASE("the data axis reduces each rank's gradient elements") {
  ByteInputs inputs = small();
  inputs.d = 4;
  // Counted by hand: per layer 12 C^2 + 13 C with F = 4 C; wte, wpe and the final norm.
  constexpr std::size_t kC = 16;
  const std::size_t elements = 3 * (12 * kC * kC + 13 * kC) + 12 * kC + 4 * kC + 2 * kC;
  CHECK(data_elements(inputs, 0) == elements);
  CHECK(step_bytes(inputs).data.value == elements * 2 * 3 * 4);
  inputs.store = GradientStore::sharded;
  CHECK(step_bytes(inputs).data.value == elements * 2 * 3 * 4);
  inputs.tables = Tables::untied;
  CHECK(data_elements(inputs, 0) == elements + 12 * kC);
}

TEST_CASE("the tied table leaves the data axis when it is synchronised in one step") {
  ByteInputs inputs = small();
  inputs.p = 2;
  inputs.d = 2;
  inputs.layers = {2, 1};
  const std::size_t table = std::size_t{12} * 16;
  CHECK(table_sync_bytes(inputs).embedding.value == table * 2 * 3 * 4);
  CHECK(table_sync_bytes(inputs).data.value == 0);
  inputs.table_sync = TableSync::separate;
  CHECK(table_sync_bytes(inputs).embedding.value == table * 2 * 2 * 4);
  CHECK(table_sync_bytes(inputs).data.value == table * 2 * 2 * 4);
  inputs.tables = Tables::untied;
  CHECK(table_sync_bytes(inputs) == AxisBytes{});
}

TEST_CASE("a communicator's own rule for all-reduces takes the place of ours") {
  ByteInputs inputs = small();
  inputs.d = 2;
  inputs.all_reduce = [](std::size_t elements, std::size_t element_bytes, int ranks) {
    return Bytes{static_cast<std::size_t>(ranks * (ranks - 1)) * elements * element_bytes + 1};
  };
  // Three buckets: layers, norms and the table.
  CHECK(step_bytes(inputs).data.value == 2 * data_elements(inputs, 0) * 4 + 3);
}

TEST_CASE("parameters end on cache lines and tables are cut where they are") {
  ByteInputs inputs = small();
  inputs.t = 2;
  inputs.C = 4;
  inputs.F = 8;
  inputs.V = 5;
  inputs.layers = {1};
  // Per tensor rank: qkv 24 + 6, projection 8 + 4, expansion 16 + 4, projection 16 + 4, six norm
  // vectors of 4, positions 16; then 2 rows or 3 of the table.
  const std::size_t fixed = 32 + 16 + 16 + 16 + 16 + 16 + 16 + 16 + std::size_t{6} * 16 + 16;
  CHECK(data_elements(inputs, 0, 0) == fixed + 16);
  CHECK(data_elements(inputs, 0, 1) == fixed + 16);
  inputs.C = 8;
  CHECK(data_elements(inputs, 0, 1) - data_elements(inputs, 0, 0) == 16);  // 24 -> 32
}

TEST_CASE("the norms of a rank's chunks are one bucket") {
  ByteInputs inputs = small();
  inputs.p = 2;
  inputs.t = 2;
  inputs.layers = {1, 1, 1, 1};
  inputs.sequence_parallel = SequenceParallel::on;
  inputs.all_reduce = [](std::size_t elements, std::size_t, int) {
    return Bytes{elements > 0 ? std::size_t{1} : std::size_t{0}};
  };
  ByteInputs apart = inputs;
  apart.m = 0;  // what remains happens once a step
  CHECK(step_bytes(apart).tensor.value == 2);
}

}  // namespace slackline::schedule::testing
