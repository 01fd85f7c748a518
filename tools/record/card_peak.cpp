#include "tools/record/card_peak.h"

#include <algorithm>
#include <array>

namespace slackline {

namespace {

struct Card {
  std::string_view name;
  double bf16 = 0.0;   // tensor cores
  double f32 = 0.0;    // not TF32
  double bytes = 0.0;  // of memory, a second
};

// A name that another begins with stands after it.
constexpr std::array<Card, 10> kCards = {{{"NVIDIA H200 NVL", 835e12, 60e12, 4.8e12},
                                          {"NVIDIA H200", 989e12, 67e12, 4.8e12},
                                          {"NVIDIA GH200", 989e12, 67e12, 4.0e12},
                                          {"NVIDIA H100 NVL", 835e12, 60e12, 3.9e12},
                                          {"NVIDIA H100 PCIe", 756e12, 51e12, 2.0e12},
                                          {"NVIDIA H100", 989e12, 67e12, 3.35e12},
                                          {"NVIDIA A100-SXM4-40GB", 312e12, 19.5e12, 1.555e12},
                                          {"NVIDIA A100-PCIE-40GB", 312e12, 19.5e12, 1.555e12},
                                          {"NVIDIA A100-SXM4-80GB", 312e12, 19.5e12, 2.039e12},
                                          {"NVIDIA A100", 312e12, 19.5e12, 1.935e12}}};

const Card* card_named(std::string_view name) {
  const auto found =
      std::ranges::find_if(kCards, [&](const Card& card) { return name.starts_with(card.name); });
  return found == kCards.end() ? nullptr : &*found;
}

}  // namespace

double dense_peak_flops(std::string_view name, DType dtype) {
  const Card* card = card_named(name);
  return card == nullptr ? 0.0 : dtype == DType::bf16 ? card->bf16 : card->f32;
}

double peak_bytes_per_second(std::string_view name) {
  const Card* card = card_named(name);
  return card == nullptr ? 0.0 : card->bytes;
}

}  // namespace slackline
