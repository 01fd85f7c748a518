// The low-rank codec against a double-precision step of PowerSGD, and the identities that its
// error feedback rests on. Tests against PyTorch's hook: low_rank_golden_test.cpp.

#include <cmath>
#include <limits>
#include <string>

#include "compress/codec_bytes.h"
#include "core/error.h"
#include "core/rehearsal_clock.h"
#include "tests/compress/low_rank_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using reference::combined;
using reference::LowRankStep;
using reference::norm;
using reference::product;
using reference::sum_of_squares;
using reference::transposed;

// Distances relative to a matrix's norm. Sums of up to 300 products in fp32 are off by some 1e-7
// of the norm; the factors are multiplied three times and a basis of well separated columns
// magnifies little: ten times that.
constexpr double kRounding = 1e-6;

const std::vector<Orthogonalization> kMethods = {Orthogonalization::blocked,
                                                 Orthogonalization::gram_schmidt};

std::string name_of_method(Orthogonalization method) {
  return method == Orthogonalization::blocked ? "blocked" : "gram_schmidt";
}

// The left factor of the matrix in a frame of f32.
Matrix left_of(LowRankEnd& end, std::size_t matrix, const CodecSetting& setting) {
  end.stream.synchronize();
  const auto* element = reinterpret_cast<const float*>(  // behind the header
      static_cast<const std::byte*>(end.frame.view().raw()) + 16);
  for (std::size_t m = 0; m < matrix; ++m) {
    element += kParts[m].shape.rows * factor_rank(setting, kParts[m].shape);
  }
  const auto rows = static_cast<std::size_t>(kParts[matrix].shape.rows);
  const auto r = static_cast<std::size_t>(factor_rank(setting, kParts[matrix].shape));
  return {rows, r, {element, element + rows * r}};
}

// a^T b over all rows.
Matrix weight_gradient(const Matrix& a, const Matrix& b) {
  return product(transposed(a), b);
}

}  // namespace

TEST_CASE("shards of rows have factors of one rank unless the smallest one's rows bound it") {
  const MatrixShape matrix{.rows = 257, .columns = 128};
  CHECK(shards_share_factor_rank(low_rank(64), matrix, 4));  // of 64 rows and 65
  CHECK_FALSE(shards_share_factor_rank(low_rank(65), matrix, 4));
  CHECK_FALSE(shards_share_factor_rank(low_rank(128), matrix, 4));
  CHECK(shards_share_factor_rank(low_rank(128), {.rows = 256, .columns = 128}, 4));
  CHECK(shards_share_factor_rank(low_rank(128), {.rows = 257, .columns = 64}, 4));
  CHECK(shards_share_factor_rank(low_rank(512), matrix, 1));
}

TEST_CASE("low_rank's frame and sums have the bytes of their formulas") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CodecSetting setting = low_rank(3, dtype);
    LowRankEnd end(setting, kParts);
    const std::size_t left = 33 * 3 + 1 + 300 * 3;
    const std::size_t right = 15 * 3 + 7 + 256 * 3;
    CHECK(end.codec->frame_bytes() == 16 + (left + right) * size_of(dtype));
    CHECK(end.codec->frame_bytes() == frame_bytes(setting, kParts));
    REQUIRE(end.codec->sums() == 2);
    Message values = Message::normal_numbers(kParts, 1);
    end.codec->begin_sum(end.stream, values.matrices(), {}, {});
    const Tensor first = end.codec->addend(1);
    CHECK(first.num_elements() == left);
    CHECK(first.dtype() == dtype);
    end.codec->next_sum(end.stream, values.matrices(), {});
    const Tensor second = end.codec->addend(2);
    CHECK(second.num_elements() == right);
    CHECK(second.dtype() == dtype);
    const std::vector<SumRound> rounds = sum_rounds(setting, kParts);
    REQUIRE(rounds.size() == 2);
    CHECK(rounds[0].elements * rounds[0].element_bytes == first.bytes());
    CHECK(rounds[1].elements * rounds[1].element_bytes == second.bytes());
  }
}

TEST_CASE("low_rank's state is a right factor a matrix: alike on all ranks, by name and seed") {
  const std::vector<CodecPart> twins = {{.name = "a", .shape = {40, 25}},
                                        {.name = "b", .shape = {40, 25}}};
  LowRankEnd one(low_rank(4), twins);
  LowRankEnd two(low_rank(4), twins, 1);
  LowRankEnd other(low_rank(4), twins, 2, 5);
  const std::vector<CodecState> state = one.codec->state();
  REQUIRE(state.size() == 2);
  CHECK(state[1].part == "b");
  CHECK(state[1].name == "right_factor");
  CHECK(state[1].data.shape() == Shape{4, 25});
  CHECK(one.right(0).values == two.right(0).values);
  CHECK(one.right(0).values != one.right(1).values);
  CHECK(one.right(0).values != other.right(0).values);
}

TEST_CASE("what arrives is a projection: the residual is orthogonal to it and squares add up") {
  for (const Orthogonalization method : kMethods) {
    for (const int rank : {1, 4}) {
      INFO(name_of_method(method) << " " << rank);
      const CodecSetting setting = low_rank(rank, DType::f32, method);
      LowRankEnd end(setting, kParts);
      for (std::uint64_t step = 1; step <= 4; ++step) {
        Message values = Message::normal_numbers(kParts, 10 * step);
        const Message given = values;
        std::vector<LowRankStep> expected;
        std::vector<Matrix> whole;
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          whole.push_back(
              combined(matrix_of(values, kParts, m), 1.0, matrix_of(end.residual, kParts, m)));
          expected.emplace_back(whole[m], end.right(m));
        }
        Message out(kParts, 7.0);
        end.send(values, end.residual.matrices());
        end.receive(out);
        CHECK(values == given);
        CHECK(out.sentinels_intact());
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          const Matrix decoded = matrix_of(out, kParts, m);
          const Matrix missing = matrix_of(end.residual, kParts, m);
          const Matrix left = left_of(end, m, setting);
          const double size = norm(whole[m]);
          CHECK(norm(combined(decoded, -1.0, expected[m].decoded)) < kRounding * size);
          CHECK(norm(product(transposed(left), missing)) < kRounding * size);
          CHECK(sum_of_squares(decoded) + sum_of_squares(missing) ==
                Approx(size * size).epsilon(2 * kRounding));
        }
      }
    }
  }
}

TEST_CASE("a rank as large as the matrix loses nothing but rounding") {
  // Directions that the random right factor hardly sees are off by its condition number, some
  // hundred for the 256 of the largest matrix, times fp32 rounding.
  for (const Orthogonalization method : kMethods) {
    LowRankEnd end(low_rank(1000, DType::f32, method), kParts);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      Message values = Message::normal_numbers(kParts, step);
      Message out(kParts);
      end.send(values, {});
      end.receive(out);
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        INFO(name_of_method(method) << ", matrix " << m);
        CHECK(relative_distance(matrix_of(out, kParts, m), matrix_of(values, kParts, m)) < 1e-4);
      }
    }
  }
}

TEST_CASE("summed over ranks, the sum is projected, and the residuals add up to what is missing") {
  constexpr std::size_t kRanks = 3;
  const auto ends = low_rank_ends(kRanks, low_rank(4), kParts);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    std::vector<Message> values;
    for (std::uint64_t r = 0; r < kRanks; ++r) {
      values.push_back(Message::normal_numbers(kParts, 100 * step + 10 * r));
    }
    std::vector<Matrix> whole;  // the sum of what each rank has and owes
    std::vector<LowRankStep> expected;
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      whole.emplace_back(static_cast<std::size_t>(kParts[m].shape.rows),
                         static_cast<std::size_t>(kParts[m].shape.columns));
      for (std::size_t r = 0; r < kRanks; ++r) {
        whole[m] = combined(whole[m], 1.0, matrix_of(values[r], kParts, m));
        whole[m] = combined(whole[m], 1.0, matrix_of(ends[r]->residual, kParts, m));
      }
      expected.emplace_back(whole[m], ends[0]->right(m));
    }
    sum_message(ends, values);
    CHECK(values[1] == values[0]);
    CHECK(values[2] == values[0]);
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      const Matrix decoded = matrix_of(values[0], kParts, m);
      Matrix missing = combined(whole[m], -1.0, decoded);
      for (const auto& end : ends) {
        missing = combined(missing, -1.0, matrix_of(end->residual, kParts, m));
      }
      CHECK(norm(combined(decoded, -1.0, expected[m].decoded)) < kRounding * norm(whole[m]));
      CHECK(norm(missing) < kRounding * norm(whole[m]));
      CHECK(ends[2]->right(m).values == ends[0]->right(m).values);
    }
  }
}

TEST_CASE("lazy feedback leaves a weight gradient differences of activations times residuals") {
  // Messages G_i arrive as G_i + E_{i-1} - E_i. For a linear layer fed by X_i the error of the
  // weight gradient sum X_i^T G_i telescopes: sum (X_{i+1} - X_i)^T E_i - X_K^T E_K.
  constexpr std::size_t kMessages = 6;
  const std::vector<CodecPart> parts = {{.name = "boundary", .shape = {48, 20}}};
  LowRankEnd end(low_rank(2), parts);
  Matrix error(9, 20);  // of the weight gradient
  Matrix telescoped(9, 20);
  Matrix sizes(1, 1);
  const auto activations = [](std::size_t i) {
    return Matrix(48, 9, random_values(std::size_t{48} * 9, {.seed = 50 + i}));
  };
  for (std::size_t i = 0; i < kMessages; ++i) {
    Message gradient = Message::normal_numbers(parts, i + 1);
    Message out(parts);
    end.send(gradient, end.residual.matrices());
    end.receive(out);
    const Matrix lost = combined(matrix_of(out, parts, 0), -1.0, matrix_of(gradient, parts, 0));
    error = combined(error, 1.0, weight_gradient(activations(i), lost));
    const Matrix owed = matrix_of(end.residual, parts, 0);
    const Matrix next = i + 1 < kMessages ? activations(i + 1) : Matrix(48, 9);
    telescoped =
        combined(telescoped, 1.0, weight_gradient(combined(next, -1.0, activations(i)), owed));
    sizes.values[0] += norm(activations(i)) * norm(owed);
  }
  CHECK(norm(error) > 0.01 * sizes.values[0]);
  CHECK(norm(combined(error, -1.0, telescoped)) < kRounding * sizes.values[0]);
}

TEST_CASE("a low_rank frame gives the bits of a sum over one rank") {
  LowRankEnd framed(low_rank(3), kParts);
  const auto summed = low_rank_ends(1, low_rank(3), kParts);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Message values = Message::normal_numbers(kParts, 10 * step);
    std::vector<Message> sums = {values};
    Message out(kParts);
    framed.send(values, framed.residual.matrices());
    framed.receive(out);
    sum_message(summed, sums);
    CHECK(out == sums[0]);
    CHECK(framed.residual == summed[0]->residual);
  }
}

TEST_CASE("what arrives and what is owed are the values to the last bit, in bf16 too") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LowRankEnd end(low_rank(3, dtype), kParts);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      Message values = Message::normal_numbers(kParts, 10 * step);
      Message whole = values;
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        whole.tensor(m).set(sum_of(values, end.residual, m));
      }
      Message out(kParts);
      end.send(values, end.residual.matrices());
      end.receive(out);
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        std::vector<double> owed = whole.values(m);
        const std::vector<double> arrived = out.values(m);
        for (std::size_t i = 0; i < owed.size(); ++i) {
          owed[i] = static_cast<float>(owed[i] - arrived[i]);
        }
        CHECK(end.residual.values(m) == owed);
      }
    }
  }
}

TEST_CASE("factors in bf16 change what arrives by their rounding") {
  // Left and right are off by 2^-9 of each element, and the projection of the error again.
  LowRankEnd exact(low_rank(3), kParts);
  LowRankEnd rounded(low_rank(3, DType::bf16), kParts);
  const auto summed = low_rank_ends(1, low_rank(3, DType::bf16), kParts);
  Message values = Message::normal_numbers(kParts, 1);
  std::vector<Message> sums = {values};
  Message out(kParts);
  Message near(kParts);
  exact.send(values, {});
  exact.receive(out);
  rounded.send(values, {});
  rounded.receive(near);
  sum_message(summed, sums);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    CHECK(relative_distance(matrix_of(near, kParts, m), matrix_of(out, kParts, m)) < 4.0 / 512);
    CHECK(relative_distance(matrix_of(sums[0], kParts, m), matrix_of(out, kParts, m)) < 8.0 / 512);
  }
}

TEST_CASE("sums of factors in bf16 arrive on every rank, and residuals add up to what is missing") {
  constexpr std::size_t kRanks = 3;
  const auto exact = low_rank_ends(kRanks, low_rank(3), kParts);
  const auto rounded = low_rank_ends(kRanks, low_rank(3, DType::bf16), kParts);
  std::vector<Message> values;
  for (std::uint64_t r = 0; r < kRanks; ++r) {
    values.push_back(Message::normal_numbers(kParts, 10 * r + 1));
  }
  std::vector<Matrix> whole;
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    whole.push_back(
        combined(matrix_of(values[0], kParts, m), 1.0, matrix_of(values[1], kParts, m)));
    whole[m] = combined(whole[m], 1.0, matrix_of(values[2], kParts, m));
  }
  std::vector<Message> near = values;
  sum_message(exact, values);
  sum_message(rounded, near);
  CHECK(near[1] == near[0]);
  CHECK(near[2] == near[0]);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    const Matrix decoded = matrix_of(near[0], kParts, m);
    // Twice the bound of one rank's factors: every addend is rounded, and their sum once more.
    CHECK(relative_distance(decoded, matrix_of(values[0], kParts, m)) < 16.0 / 512);
    Matrix missing = combined(whole[m], -1.0, decoded);
    for (const auto& end : rounded) {
      missing = combined(missing, -1.0, matrix_of(end->residual, kParts, m));
    }
    CHECK(norm(missing) < kRounding * norm(whole[m]));
    CHECK(rounded[2]->right(m).values == rounded[0]->right(m).values);
  }
}

TEST_CASE("both ways to make columns orthonormal decode alike") {
  LowRankEnd blocked(low_rank(20), kParts);
  LowRankEnd columns(low_rank(20, DType::f32, Orthogonalization::gram_schmidt), kParts);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    Message values = Message::normal_numbers(kParts, 10 * step);
    Message out(kParts);
    Message other(kParts);
    blocked.send(values, blocked.residual.matrices());
    blocked.receive(out);
    columns.send(values, columns.residual.matrices());
    columns.receive(other);
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      INFO("step " << step << ", matrix " << m);
      // A full matrix of rank 15 is projected onto all it spans, with a condition of some hundred.
      CHECK(relative_distance(matrix_of(other, kParts, m), matrix_of(out, kParts, m)) < 1e-5);
    }
  }
}

}  // namespace slackline::testing
