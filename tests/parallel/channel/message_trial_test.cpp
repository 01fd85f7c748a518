// Candidates tried on kept messages: errors against what arithmetic says, over ranks, and of parts
// of messages.

#include "parallel/channel/message_trial.h"

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "core/comm/world.h"
#include "parallel/choose/compression_policy.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;

// Two stages of two data ranks.
MeshJob job() {
  MeshJob job{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 128},
      .micro_batch = {.B = 2, .T = 16},
      .num_micro_batches = 4};
  job.parallel.pipeline = 2;
  job.parallel.data = 2;
  return job;
}

const std::map<Site, std::vector<CodecSetting>> kCandidates = {
    {Site::data_gradient, {{.rank = 1}, {.rank = 2}, {.kind = CodecKind::cast}}}};

// A message of `rows` x `columns`.
class Matrix {
 public:
  Matrix(std::int64_t rows,
         std::int64_t columns,
         const std::function<double(std::int64_t, std::int64_t)>& element)
      : buffer_(make_buffer("matrix", DType::f32, {rows, columns})), shape_{rows, columns} {
    const Tensor all = values();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        all.span<float>()[static_cast<std::size_t>(r * columns + c)] =
            static_cast<float>(element(r, c));
      }
    }
  }

  [[nodiscard]] Tensor values() const { return buffer_.view(DType::f32, shape_); }

 private:
  Buffer buffer_;
  Shape shape_;
};

// Two orthogonal directions of norms 4 s and 2 s in 16 columns.
double of_two_directions(std::int64_t r, std::int64_t c, double s) {
  return r == 0 && c < 16 ? s : r == 1 && c >= 16 && c < 20 ? s : 0.0;
}

// By rank; the same on all of them.
std::vector<CodecError> tried(int ranks, const std::function<void(int, KeptMessages&)>& keep) {
  std::vector<std::vector<CodecError>> errors(static_cast<std::size_t>(ranks));
  run_local_ranks(ranks, WorldOptions{}, [&](Communicator& world) {
    KeptMessages messages;
    keep(world.rank(), messages);
    errors[static_cast<std::size_t>(world.rank())] =
        try_candidates(messages, kCandidates, compressible_classes(job()), {1, Device::cpu}, world);
  });
  for (const std::vector<CodecError>& of_rank : errors) {
    CHECK(of_rank == errors.front());
  }
  return errors.front();
}

void keep(KeptMessages& messages, int stage, const Matrix& matrix) {
  Stream stream({.name = "test", .num_threads = 1});
  messages.keep(stream, Site::data_gradient, stage, matrix.values());
  stream.synchronize();
}

}  // namespace

TEST_CASE("a candidate loses of a message what arithmetic says") {
  const std::vector<CodecError> errors = tried(1, [](int, KeptMessages& messages) {
    keep(messages, 1, {32, 32, [](auto r, auto c) { return of_two_directions(r, c, 1.0); }});
  });
  REQUIRE(errors.size() == 3);
  for (const CodecError& error : errors) {
    CHECK(error.members == schedule::TransferClass{Site::data_gradient, 1, Phase::tail});
  }
  // Norms 4 and 2: the second is lost. Three warm runs turn the factor by (2 / 4)^2 each.
  CHECK(errors[0].relative_error == Approx(2.0 / std::sqrt(20.0)).epsilon(1e-3));
  CHECK(errors[1].relative_error < 1e-5);  // rounding of floats
  CHECK(errors[2].relative_error == 0.0);  // ones are bf16 numbers
}

TEST_CASE("errors are of what all ranks have kept together") {
  // The second rank's message is half as large, and of one direction.
  const std::vector<CodecError> errors = tried(2, [](int rank, KeptMessages& messages) {
    keep(messages, 0, {32, 32, [&](auto r, auto c) {
                         return rank == 0          ? of_two_directions(r, c, 1.0)
                                : r == 0 && c < 16 ? 0.5
                                                   : 0.0;
                       }});
  });
  REQUIRE(errors.size() == 3);
  CHECK(errors[0].relative_error == Approx(2.0 / std::sqrt(20.0 + 4.0)).epsilon(1e-3));
}

TEST_CASE("a candidate in units of moments is tried with the moments of the kept elements") {
  const auto size = [](auto r, auto c) { return 1.0 - 0.1 * static_cast<double>((r + c) % 7); };
  const Matrix values(32, 32, [&](auto r, auto c) { return -size(r, c); });
  const Matrix moments(32, 32, [&](auto r, auto c) { return size(r, c) * size(r, c); });
  CodecSetting plain{.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::token};
  CodecSetting in_moments = plain;
  in_moments.units = Units::moments;
  std::vector<CodecError> errors;
  run_local_ranks(1, WorldOptions{}, [&](Communicator& world) {
    Stream stream({.name = "test", .num_threads = 1});
    KeptMessages messages;
    messages.keep(stream, Site::data_gradient, 1, values.values(), moments.values());
    stream.synchronize();
    errors = try_candidates(messages,
                            {{Site::data_gradient, {plain, in_moments}}},
                            compressible_classes(job()),
                            {1, Device::cpu},
                            world);
  });
  REQUIRE(errors.size() == 2);
  // Levels are 0, half and all of the largest; in units of moments elements are alike, but for
  // what the floor of units adds to each, a 1024th of their mean size.
  CHECK(errors[0].relative_error > 0.1);
  CHECK(errors[1].relative_error < 0.01);
}

TEST_CASE("of a part of a message low_rank has the same share of its directions") {
  // The first 256 rows of 4096 x 4096 are kept: 32 directions of the whole are two of theirs.
  const MeshJob whole = [] {
    MeshJob large = job();
    large.model.hidden = 4096;
    return large;
  }();
  std::vector<CodecError> errors;
  run_local_ranks(1, WorldOptions{}, [&](Communicator& world) {
    KeptMessages messages;
    keep(messages, 0, {4096, 4096, [](auto r, auto c) { return of_two_directions(r, c, 1.0); }});
    errors = try_candidates(messages,
                            {{Site::data_gradient, {{.rank = 16}, {.rank = 32}}}},
                            compressible_classes(whole),
                            {1, Device::cpu},
                            world);
  });
  // The stage's sums that the backward pass hides and its last ones, with the same messages.
  REQUIRE(errors.size() == 4);
  for (std::size_t i = 0; i < errors.size(); i += 2) {
    CHECK(errors[i].members.phase == (i == 0 ? Phase::step : Phase::tail));
    CHECK(errors[i].relative_error == Approx(2.0 / std::sqrt(20.0)).epsilon(1e-3));
    CHECK(errors[i + 1].relative_error < 1e-5);
  }
}

TEST_CASE(
    "nothing is said of classes that no rank has kept a message of, or of nothing but zeros") {
  CHECK(tried(2, [](int, KeptMessages&) {}).empty());
  CHECK(tried(1, [](int, KeptMessages& messages) {
          keep(messages, 0, {32, 32, [](auto, auto) { return 0.0; }});
        }).empty());
}

TEST_CASE("matrices of a site and stage are kept while there is room, the first at least in part") {
  KeptMessages messages;
  keep(messages, 0, {2, 3, [](auto r, auto c) { return static_cast<double>(3 * r + c); }});
  keep(messages, 0, {2, 3, [](auto, auto) { return 9.0; }});
  constexpr std::int64_t kColumns = 1 << 11;
  const Matrix large(1 << 10, kColumns, [](auto r, auto) { return static_cast<double>(r); });
  keep(messages, 1, large);
  keep(messages, 1, {2, 3, [](auto, auto) { return 9.0; }});
  keep(messages, 0, large);
  REQUIRE(messages.all().size() == 3);
  CHECK(messages.all()[0].values().span<float>()[5] == 5.0F);
  CHECK(messages.all()[1].values().span<float>()[5] == 9.0F);
  CHECK(messages.num_elements(Site::data_gradient, 0) == 12);
  CHECK(messages.num_elements(Site::embedding, 0) == 0);
  const KeptMessages::Message& part = messages.all()[2];
  CHECK(part.shape == MatrixShape{1 << 9, kColumns});
  CHECK(part.whole == MatrixShape{1 << 10, kColumns});
  CHECK(part.values().span<float>().back() == 511.0F);
  messages.begin_step();
  CHECK(messages.all().empty());
}

}  // namespace slackline
