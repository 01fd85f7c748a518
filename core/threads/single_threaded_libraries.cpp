#include "core/threads/single_threaded_libraries.h"

#include <omp.h>

namespace slackline {

void make_libraries_single_threaded() {
  omp_set_num_threads(1);
}

}  // namespace slackline
