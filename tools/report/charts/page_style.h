#pragma once

#include "tools/report/charts/html.h"

namespace slackline::report {

// The style sheet of a report, in its element: light and dark, narrow and wide, screen and paper.
[[nodiscard]] Html page_style();

}  // namespace slackline::report
