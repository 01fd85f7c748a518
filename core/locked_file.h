#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/file_io.h"

namespace slackline {

// A file that is open for appending and locked: no other process gets it while this one, or a
// process that it passed the descriptor to, has it open. The system unlocks it when the last of
// them has ended, however it ended; the file itself stays. Move-only.
class LockedFile {
 public:
  // Creates the file when it is not there. Nothing where another process holds it; throws FileError
  // where it cannot be opened. Where its file system has no locks, a warning says so, and every
  // process gets the file.
  [[nodiscard]] static std::optional<LockedFile> open(const std::string& path);

  // The same, but blocks while another process, or another LockedFile of this one, holds the file,
  // and throws FileError where there are no locks.
  [[nodiscard]] static LockedFile wait(const std::string& path);

  // Puts `text` in the place of all that the file holds.
  void replace_text(std::string_view text);

  // Closed by exec() unless it is duplicated for the new program.
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  // Opens the file without locking it.
  explicit LockedFile(std::string path);

  std::string path_;
  OpenFile file_;
};

}  // namespace slackline
