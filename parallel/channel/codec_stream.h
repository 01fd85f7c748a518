#pragma once

#include <memory>

#include "core/tensor/stream.h"
#include "core/threads/worker.h"

namespace slackline {

// Where a rank's codecs run: beside its compute, one call after the other.
struct CodecStream {
  StreamView stream;
  std::shared_ptr<Worker> worker;  // shared with transfers under way; nothing else uses the stream
};

}  // namespace slackline
