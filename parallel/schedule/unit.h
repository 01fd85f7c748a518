#pragma once

#include <compare>
#include <cstddef>

namespace slackline::schedule {

// A span of time or a point on a step's clock.
struct Seconds {
  double value{};

  friend auto operator<=>(const Seconds&, const Seconds&) = default;

  Seconds& operator+=(Seconds other) {
    value += other.value;
    return *this;
  }

  friend Seconds operator+(Seconds a, Seconds b) { return {a.value + b.value}; }

  friend Seconds operator-(Seconds a, Seconds b) { return {a.value - b.value}; }

  friend Seconds operator*(double factor, Seconds a) { return {factor * a.value}; }

  friend double operator/(Seconds a, Seconds b) { return a.value / b.value; }
};

struct Bytes {
  std::size_t value{};

  friend auto operator<=>(const Bytes&, const Bytes&) = default;

  Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }

  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }

  friend Bytes operator*(std::size_t factor, Bytes a) { return {factor * a.value}; }
};

}  // namespace slackline::schedule
