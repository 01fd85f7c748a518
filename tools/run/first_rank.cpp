#include "tools/run/first_rank.h"

#include <string>

#include "core/comm/text_exchange.h"
#include "core/error.h"

namespace slackline {

void on_first_rank(Communicator& world, const std::function<void()>& work) {
  std::string message;
  if (world.rank() == 0) {
    try {
      work();
    } catch (const FileError& error) {
      message = error.what();
    }
  }
  message = broadcast_text(world, 0, message, "outcome of rank 0's file work");
  if (!message.empty()) {
    throw AgreedError(Lines{message}, ExitCode::file);
  }
}

}  // namespace slackline
