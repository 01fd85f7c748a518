#pragma once

#include <string>
#include <vector>

#include "tests/tools/run/training_run.h"

namespace slackline {

// Twelve steps of two workers that train apart.
inline std::vector<std::string> workers(const std::string& outer,
                                        const std::vector<std::string>& more) {
  return with({"outer=" + outer,
               "parallel.group=1",
               "parallel.data=2",
               "batch.micro=2",
               "run.steps=12",
               "run.save_every=5",
               "run.keep=9",
               "optimizer.lr=1e-3",
               "run.eval_every=4"},
              more);
}

}  // namespace slackline
