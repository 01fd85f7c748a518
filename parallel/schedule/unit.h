#pragma once

#include <compare>
#include <cstddef>

namespace slackline::schedule {

// A span of time or a point on a step's clock.
struct Seconds {
  double value{};

  friend bool operator==(const Seconds&, const Seconds&) = default;

  friend bool operator<(Seconds a, Seconds b) { return a.value < b.value; }

  friend bool operator>(Seconds a, Seconds b) { return b < a; }

  friend bool operator<=(Seconds a, Seconds b) { return !(b < a); }

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

  auto operator<=>(const Bytes&) const = default;  // NOLINT(modernize-use-nullptr)

  Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }

  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }

  friend Bytes operator*(std::size_t factor, Bytes a) { return {factor * a.value}; }
};

}  // namespace slackline::schedule
