# A test that fails where the configuration found something missing: tests that need it are not
# defined, and the rest alone would pass.
message(FATAL_ERROR "tests were left out for want of ${MISSING}. Install it (on Debian and Ubuntu: "
  "tools/install_packages test) and configure again.")
