#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace slackline::reference {

// A matrix of doubles, row-major.
struct Matrix {
  Matrix(std::size_t num_rows, std::size_t num_columns)
      : Matrix(num_rows, num_columns, std::vector<double>(num_rows * num_columns)) {}

  Matrix(std::size_t num_rows, std::size_t num_columns, std::vector<double> elements)
      : rows(num_rows), columns(num_columns), values(std::move(elements)) {}

  [[nodiscard]] double& at(std::size_t i, std::size_t j) { return values[i * columns + j]; }

  [[nodiscard]] double at(std::size_t i, std::size_t j) const { return values[i * columns + j]; }

  std::size_t rows;
  std::size_t columns;
  std::vector<double> values;
};

[[nodiscard]] inline Matrix transposed(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) {
      result.at(j, i) = a.at(i, j);
    }
  }
  return result;
}

[[nodiscard]] inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) {
        result.at(i, j) += a.at(i, k) * b.at(k, j);
      }
    }
  }
  return result;
}

// a + factor b.
[[nodiscard]] inline Matrix combined(Matrix a, double factor, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    a.values[i] += factor * b.values[i];
  }
  return a;
}

[[nodiscard]] inline double sum_of_squares(const Matrix& a) {
  double sum = 0.0;
  for (const double value : a.values) {
    sum += value * value;
  }
  return sum;
}

// Frobenius.
[[nodiscard]] inline double norm(const Matrix& a) {
  return std::sqrt(sum_of_squares(a));
}

// Textbook Gram-Schmidt of the columns, each projection done twice. REQUIRES: independent columns.
[[nodiscard]] inline Matrix orthonormal_columns(const Matrix& a) {
  Matrix rows = transposed(a);
  for (std::size_t k = 0; k < rows.rows; ++k) {
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t earlier = 0; earlier < k; ++earlier) {
        double share = 0.0;
        for (std::size_t j = 0; j < rows.columns; ++j) {
          share += rows.at(earlier, j) * rows.at(k, j);
        }
        for (std::size_t j = 0; j < rows.columns; ++j) {
          rows.at(k, j) -= share * rows.at(earlier, j);
        }
      }
    }
    double squares = 0.0;
    for (std::size_t j = 0; j < rows.columns; ++j) {
      squares += rows.at(k, j) * rows.at(k, j);
    }
    for (std::size_t j = 0; j < rows.columns; ++j) {
      rows.at(k, j) /= std::sqrt(squares);
    }
  }
  return transposed(rows);
}

// One message of PowerSGD: M (n, m) with the right factor (r, m) of the message before. Over
// ranks, M is their sum.
struct LowRankStep {
  LowRankStep(const Matrix& m, const Matrix& right_before)
      : left(orthonormal_columns(product(m, transposed(right_before)))),
        right(product(transposed(left), m)),
        decoded(product(left, right)) {}

  Matrix left;
  Matrix right;
  Matrix decoded;
};

}  // namespace slackline::reference
