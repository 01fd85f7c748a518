#pragma once

namespace slackline {

// oneDNN is built on OpenMP here. Tells its runtime to use one thread for calls made from the
// calling thread, since our own pool splits the work (docs/numerics.md says why). Cheap; call it
// once on every thread that calls such a library.
void make_libraries_single_threaded();

}  // namespace slackline
