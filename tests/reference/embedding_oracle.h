#pragma once

#include <cstddef>
#include <vector>

namespace slackline::reference {

// Token and position lookup in double. Rows of `tokens` have T positions; tables have C columns.
struct Embedding {
  std::vector<std::size_t> tokens;
  std::size_t T = 1;
  std::size_t C = 1;

  [[nodiscard]] std::vector<double> forward(const std::vector<double>& token_table,
                                            const std::vector<double>& position_table,
                                            std::size_t first_position = 0) const {
    std::vector<double> y(tokens.size() * C);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::size_t c = 0; c < C; ++c) {
        y[row * C + c] =
            token_table[tokens[row] * C + c] + position_table[(first_position + row % T) * C + c];
      }
    }
    return y;
  }

  // Adds to both tables' gradients.
  void backward(const std::vector<double>& dy,
                std::vector<double>& d_token_table,
                std::vector<double>& d_position_table) const {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::size_t c = 0; c < C; ++c) {
        d_token_table[tokens[row] * C + c] += dy[row * C + c];
        d_position_table[row % T * C + c] += dy[row * C + c];
      }
    }
  }
};

}  // namespace slackline::reference
