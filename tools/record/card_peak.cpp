#include "tools/record/card_peak.h"

#include <array>

namespace slackline {

namespace {

struct Card {
  std::string_view name;
  double bf16 = 0.0;  // tensor cores
  double f32 = 0.0;   // not TF32
};

// A name that another begins with stands after it.
constexpr std::array<Card, 7> kCards = {{{"NVIDIA H200 NVL", 835e12, 60e12},
                                         {"NVIDIA H200", 989e12, 67e12},
                                         {"NVIDIA GH200", 989e12, 67e12},
                                         {"NVIDIA H100 NVL", 835e12, 60e12},
                                         {"NVIDIA H100 PCIe", 756e12, 51e12},
                                         {"NVIDIA H100", 989e12, 67e12},
                                         {"NVIDIA A100", 312e12, 19.5e12}}};

}  // namespace

double dense_peak_flops(std::string_view name, DType dtype) {
  for (const Card& card : kCards) {
    if (name.starts_with(card.name)) {
      return dtype == DType::bf16 ? card.bf16 : card.f32;
    }
  }
  return 0.0;
}

}  // namespace slackline
