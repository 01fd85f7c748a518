#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/reference/dropout_oracle.h"

namespace slackline::reference {

// Causal multi-head self-attention in double, as core/kernels/attention/attention.h defines it, one
// query after the other. qkv is (B, T, 3 * H * D).
struct Attention {
  std::size_t B = 1, T = 1, H = 1, D = 1;
  DropoutKey dropout{};
  std::size_t first_head = 0;

  struct Forward {
    std::vector<double> output;       // (B, T, H * D)
    std::vector<double> log_sum_exp;  // (B, H, T)
  };

  [[nodiscard]] Forward forward(const std::vector<double>& qkv) const {
    Forward result{std::vector<double>(B * T * H * D), std::vector<double>(B * H * T)};
    const std::vector<double> factors = dropout_by_element();
    for_each_query([&](std::size_t b, std::size_t h, std::size_t q) {
      const Row row = softmax(qkv, b, h, q);
      result.log_sum_exp[(b * H + h) * T + q] = row.log_sum_exp;
      for (std::size_t key = 0; key <= q; ++key) {
        const double weight = row.P[key] * factors[factor_at(b, h, q, key)];
        for (std::size_t d = 0; d < D; ++d) {
          result.output[output_at(b, q, h) + d] += weight * qkv[part_at(b, key, 2, h) + d];
        }
      }
    });
    return result;
  }

  // d_qkv for d_output.
  [[nodiscard]] std::vector<double> backward(const std::vector<double>& qkv,
                                             const std::vector<double>& d_output) const {
    std::vector<double> d_qkv(qkv.size());
    const std::vector<double> factors = dropout_by_element();
    for_each_query([&](std::size_t b, std::size_t h, std::size_t q) {
      const Row row = softmax(qkv, b, h, q);
      const double* dO = &d_output[output_at(b, q, h)];
      std::vector<double> dP(q + 1);
      double delta = 0.0;
      for (std::size_t key = 0; key <= q; ++key) {
        const double factor = factors[factor_at(b, h, q, key)];
        for (std::size_t d = 0; d < D; ++d) {
          dP[key] += factor * dO[d] * qkv[part_at(b, key, 2, h) + d];
          d_qkv[part_at(b, key, 2, h) + d] += row.P[key] * factor * dO[d];
        }
        delta += row.P[key] * dP[key];
      }
      for (std::size_t key = 0; key <= q; ++key) {
        const double dS = row.P[key] * (dP[key] - delta) * scale();
        for (std::size_t d = 0; d < D; ++d) {
          d_qkv[part_at(b, q, 0, h) + d] += dS * qkv[part_at(b, key, 1, h) + d];
          d_qkv[part_at(b, key, 1, h) + d] += dS * qkv[part_at(b, q, 0, h) + d];
        }
      }
    });
    return d_qkv;
  }

 private:
  struct Row {
    std::vector<double> P;
    double log_sum_exp = 0.0;
  };

  template <typename Body>
  void for_each_query(const Body& body) const {
    for (std::size_t b = 0; b < B; ++b) {
      for (std::size_t h = 0; h < H; ++h) {
        for (std::size_t q = 0; q < T; ++q) {
          body(b, h, q);
        }
      }
    }
  }

  [[nodiscard]] double scale() const { return 1.0 / std::sqrt(static_cast<double>(D)); }

  [[nodiscard]] std::size_t part_at(std::size_t b,
                                    std::size_t t,
                                    std::size_t part,
                                    std::size_t h) const {
    return ((b * T + t) * 3 + part) * H * D + h * D;
  }

  [[nodiscard]] std::size_t output_at(std::size_t b, std::size_t t, std::size_t h) const {
    return ((b * T + t) * H + h) * D;
  }

  [[nodiscard]] std::size_t factor_at(std::size_t b,
                                      std::size_t h,
                                      std::size_t q,
                                      std::size_t key) const {
    return ((b * (first_head + H) + first_head + h) * T + q) * T + key;
  }

  [[nodiscard]] std::vector<double> dropout_by_element() const {
    const std::size_t elements = (first_head + H) * T * T;
    return dropout.probability > 0.0F ? dropout_factors(dropout, B, elements)
                                      : std::vector<double>(B * elements, 1.0);
  }

  [[nodiscard]] Row softmax(const std::vector<double>& qkv,
                            std::size_t b,
                            std::size_t h,
                            std::size_t q) const {
    Row row;
    for (std::size_t key = 0; key <= q; ++key) {
      double score = 0.0;
      for (std::size_t d = 0; d < D; ++d) {
        score += qkv[part_at(b, q, 0, h) + d] * qkv[part_at(b, key, 1, h) + d];
      }
      row.P.push_back(score * scale());
    }
    const double most = *std::max_element(row.P.begin(), row.P.end());
    double sum = 0.0;
    for (double& weight : row.P) {
      weight = std::exp(weight - most);
      sum += weight;
    }
    for (double& weight : row.P) {
      weight /= sum;
    }
    row.log_sum_exp = most + std::log(sum);
    return row;
  }
};

}  // namespace slackline::reference
