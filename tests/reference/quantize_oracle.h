#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/kernels/quantize/quantize.h"
#include "core/tensor/dtype.h"

namespace slackline::reference {

// A matrix and its form in few bits, in double, from the definitions of
// compress/kernels/quantize/quantize.h.
class QuantizeOracle {
 public:
  QuantizeOracle(QuantizedFormat format, std::size_t rows, std::size_t columns)
      : format_(format), rows_(rows), columns_(columns) {}

  [[nodiscard]] double levels() const { return std::ldexp(1.0, format_.bits - 1); }

  // Which scale element (row, column) has. REQUIRES: it has one.
  [[nodiscard]] std::size_t scale_index(std::size_t row, std::size_t column) const {
    const auto group = static_cast<std::size_t>(std::max<std::int64_t>(1, format_.group));
    switch (format_.shared) {
      case ScaleOf::channel:
        return column;
      case ScaleOf::token:
        return row;
      case ScaleOf::group:
        return row * ((columns_ + group - 1) / group) + column / group;
      case ScaleOf::tensor:
      case ScaleOf::both:
        break;
    }
    return 0;
  }

  // Returns the scale that the levels of element e are multiples of.
  [[nodiscard]] double scale_of(const std::vector<double>& all, std::size_t e) const {
    return format_.shared == ScaleOf::both ? all[e / columns_] * all[rows_ + e % columns_]
                                           : all[scale_index(e / columns_, e % columns_)];
  }

  [[nodiscard]] double offset() const { return format_.shared == ScaleOf::both ? 0.5 : 0.0; }

  // Largest magnitudes, or root mean squares of rows and columns, rounded to bf16. Finite and not
  // tiny.
  [[nodiscard]] std::vector<double> scales(const std::vector<double>& x) const {
    if (format_.shared == ScaleOf::both) {
      return both_scales(x);
    }
    std::vector<double> all(static_cast<std::size_t>(
        format_.num_scales(static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(columns_))));
    for (std::size_t e = 0; e < x.size(); ++e) {
      double& scale = all[scale_index(e / columns_, e % columns_)];
      scale = std::max(scale, std::abs(x[e]));
    }
    for (double& scale : all) {
      scale = static_cast<float>(BFloat16(static_cast<float>(scale)));
    }
    return all;
  }

  // Where elements stand among the codes, before they are rounded and clipped.
  [[nodiscard]] std::vector<double> positions(const std::vector<double>& x) const {
    const std::vector<double> all = scales(x);
    std::vector<double> result(x.size());
    for (std::size_t e = 0; e < x.size(); ++e) {
      const double scale = scale_of(all, e);
      result[e] = levels() - offset() + (scale == 0.0 ? 0.0 : x[e] / scale * levels());
    }
    return result;
  }

  [[nodiscard]] double largest_code() const { return 2.0 * levels() - 1.0; }

  // The codes of packed rows.
  [[nodiscard]] std::vector<double> codes(const std::vector<double>& packed) const {
    const auto bits = static_cast<std::size_t>(format_.bits);
    const std::size_t row_bytes = (columns_ * bits + 7) / 8;
    std::vector<double> result(rows_ * columns_);
    for (std::size_t e = 0; e < result.size(); ++e) {
      const std::size_t bit = e % columns_ * bits;
      const std::size_t at = e / columns_ * row_bytes + bit / 8;
      auto word = static_cast<unsigned>(packed[at]);
      if (bit % 8 + bits > 8) {
        word += static_cast<unsigned>(packed[at + 1]) << 8U;
      }
      result[e] = (word >> (bit % 8)) % (1U << bits);
    }
    return result;
  }

  [[nodiscard]] std::vector<double> decoded(const std::vector<double>& codes_of_elements,
                                            const std::vector<double>& all_scales) const {
    std::vector<double> result(codes_of_elements.size());
    for (std::size_t e = 0; e < result.size(); ++e) {
      const double scale = scale_of(all_scales, e);
      result[e] = (codes_of_elements[e] - levels() + offset()) / levels() * scale;
    }
    return result;
  }

 private:
  [[nodiscard]] std::vector<double> both_scales(const std::vector<double>& x) const {
    std::vector<double> squares(rows_ + columns_);
    double all = 0.0;
    for (std::size_t e = 0; e < x.size(); ++e) {
      squares[e / columns_] += x[e] * x[e];
      squares[rows_ + e % columns_] += x[e] * x[e];
      all += x[e] * x[e];
    }
    const auto rows = static_cast<double>(rows_);
    const auto columns = static_cast<double>(columns_);
    const double reach = format_.bits == 2   ? 1.9914
                         : format_.bits == 3 ? 2.3440
                         : format_.bits == 4 ? 2.6816
                                             : 3.9373;
    for (std::size_t i = 0; i < squares.size(); ++i) {
      const double scale = i < rows_    ? reach * std::sqrt(squares[i] / columns)
                           : all == 0.0 ? 0.0
                                        : std::sqrt(squares[i] / rows / (all / rows / columns));
      squares[i] = static_cast<float>(BFloat16(static_cast<float>(scale)));
    }
    return squares;
  }

  QuantizedFormat format_;
  std::size_t rows_;
  std::size_t columns_;
};

}  // namespace slackline::reference
