#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace slackline::reference {

// Output head and loss in double: logits = x table^T, loss = -log softmax(logits)[target].
struct CrossEntropy {
  std::size_t C = 1;
  std::size_t V = 1;
  std::vector<std::size_t> targets;

  // Losses by row.
  [[nodiscard]] std::vector<double> losses(const std::vector<double>& x,
                                           const std::vector<double>& table) const {
    std::vector<double> result;
    for (std::size_t n = 0; n < targets.size(); ++n) {
      result.push_back(-std::log(probabilities(&x[n * C], table)[targets[n]]));
    }
    return result;
  }

  struct Gradients {
    std::vector<double> dx;
    std::vector<double> d_table;
  };

  // The gradients of scale * sum(losses).
  [[nodiscard]] Gradients gradients(const std::vector<double>& x,
                                    const std::vector<double>& table,
                                    double scale) const {
    Gradients out{std::vector<double>(x.size()), std::vector<double>(table.size())};
    for (std::size_t n = 0; n < targets.size(); ++n) {
      const std::vector<double> p = probabilities(&x[n * C], table);
      for (std::size_t v = 0; v < V; ++v) {
        const double d_logit = scale * (p[v] - (v == targets[n] ? 1.0 : 0.0));
        for (std::size_t c = 0; c < C; ++c) {
          out.dx[n * C + c] += d_logit * table[v * C + c];
          out.d_table[v * C + c] += d_logit * x[n * C + c];
        }
      }
    }
    return out;
  }

 private:
  [[nodiscard]] std::vector<double> probabilities(const double* x,
                                                  const std::vector<double>& table) const {
    std::vector<double> p(V);
    for (std::size_t v = 0; v < V; ++v) {
      for (std::size_t c = 0; c < C; ++c) {
        p[v] += x[c] * table[v * C + c];
      }
    }
    const double most = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    for (double& value : p) {
      value = std::exp(value - most);
      sum += value;
    }
    for (double& value : p) {
      value /= sum;
    }
    return p;
  }
};

}  // namespace slackline::reference
