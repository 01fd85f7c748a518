#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/thread_pool.h"
#include "model/flops.h"
#include "model/parameter_table.h"
#include "tools/commands.h"
#include "tools/memory_plan.h"
#include "tools/train_config.h"

namespace slackline {

namespace {

struct PlanOptions {
  std::string config;
  bool json = false;
};

// What the tables below are made from.
struct Plan {
  TrainConfig config;
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;
  FlopsPerToken flops;
  std::vector<MemoryItem> memory;
};

Plan make_plan(const TrainConfig& config) {
  return {.config = config,
          .parameters = num_parameters(config.model),
          .tokens_per_step = config.batch.global * config.model.sequence,
          .flops = flops_per_token(config.model),
          .memory = memory_plan(config, {}, default_num_threads())};
}

void print_text(const Plan& plan) {
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  fmt::print("parameters            {:>18}\n", plan.parameters);
  fmt::print("tokens a step         {:>18}\n", plan.tokens_per_step);
  fmt::print("micro-batches a step  {:>18}\n\n", plan.config.num_micro_batches());
  fmt::print("floating-point operations      a token       a step\n");
  for (const auto& [name, flops] :
       {std::pair{"model, causal (Megatron-LM)", plan.flops.causal},
        std::pair{"model, full attention (6N + 12LCT)", plan.flops.full_attention},
        std::pair{"hardware, with recomputation", plan.flops.hardware}}) {
    fmt::print("{:<36} {:>10.4g}   {:>10.4g}\n", name, flops, flops * tokens);
  }
  fmt::print("\nmemory of rank 0                                bytes\n");
  for (const MemoryItem& item : plan.memory) {
    fmt::print("{:<36} {:>16}\n", item.name, item.bytes);
  }
  fmt::print("{:<36} {:>16}\n", "total", total_bytes(plan.memory));
}

void print_json(const Plan& plan) {
  std::string items;
  for (const MemoryItem& item : plan.memory) {
    items += fmt::format(
        R"({}{{"name": "{}", "bytes": {}}})", items.empty() ? "" : ", ", item.name, item.bytes);
  }
  fmt::print(R"({{"parameters": {}, "tokens_per_step": {}, "micro_batches": {}, )"
             R"("flops_per_token": {{"causal": {}, "full_attention": {}, "hardware": {}}}, )"
             R"("memory": [{}], "memory_bytes": {}}})"
             "\n",
             plan.parameters,
             plan.tokens_per_step,
             plan.config.num_micro_batches(),
             plan.flops.causal,
             plan.flops.full_attention,
             plan.flops.hardware,
             items,
             total_bytes(plan.memory));
}

}  // namespace

void add_plan_command(CLI::App& app, ExitCode& code) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Print what a config would take, without running it");
  command->add_option("CONFIG", options->config, "JSON config")->required();
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer("Example: slackline plan configs/gpt2_124m.json");
  command->callback([options, &code] {
    const Plan plan = make_plan(read_train_config(JsonReader::parse_file(options->config)));
    options->json ? print_json(plan) : print_text(plan);
    code = ExitCode::done;
  });
}

}  // namespace slackline
