#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace slackline::reference {

// Layer norm over rows of C elements, forward and backward, in double.
struct LayerNorm {
  std::size_t C = 1;
  std::vector<double> weight;
  std::vector<double> bias;
  double epsilon = 1e-5;

  struct Statistics {
    double mean = 0.0;
    double rstd = 0.0;
  };

  [[nodiscard]] Statistics statistics(const double* row) const {
    Statistics result;
    for (std::size_t i = 0; i < C; ++i) {
      result.mean += row[i] / static_cast<double>(C);
    }
    double variance = 0.0;
    for (std::size_t i = 0; i < C; ++i) {
      variance += (row[i] - result.mean) * (row[i] - result.mean) / static_cast<double>(C);
    }
    result.rstd = 1.0 / std::sqrt(variance + epsilon);
    return result;
  }

  [[nodiscard]] std::vector<double> forward(const std::vector<double>& x) const {
    std::vector<double> y(x.size());
    for (std::size_t row = 0; row < x.size(); row += C) {
      const Statistics s = statistics(&x[row]);
      for (std::size_t i = 0; i < C; ++i) {
        y[row + i] = (x[row + i] - s.mean) * s.rstd * weight[i] + bias[i];
      }
    }
    return y;
  }

  struct Gradients {
    std::vector<double> dx;
    std::vector<double> d_weight;
    std::vector<double> d_bias;
  };

  [[nodiscard]] Gradients backward(const std::vector<double>& x,
                                   const std::vector<double>& dy) const {
    Gradients out{std::vector<double>(x.size()), std::vector<double>(C), std::vector<double>(C)};
    const auto count = static_cast<double>(C);
    for (std::size_t row = 0; row < x.size(); row += C) {
      const Statistics s = statistics(&x[row]);
      double mean_g = 0.0;
      double mean_g_normal = 0.0;
      for (std::size_t i = 0; i < C; ++i) {
        const double normal = (x[row + i] - s.mean) * s.rstd;
        const double g = dy[row + i] * weight[i];
        mean_g += g / count;
        mean_g_normal += g * normal / count;
        out.d_weight[i] += dy[row + i] * normal;
        out.d_bias[i] += dy[row + i];
      }
      for (std::size_t i = 0; i < C; ++i) {
        const double normal = (x[row + i] - s.mean) * s.rstd;
        out.dx[row + i] = s.rstd * (dy[row + i] * weight[i] - mean_g - normal * mean_g_normal);
      }
    }
    return out;
  }
};

}  // namespace slackline::reference
