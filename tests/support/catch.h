#pragma once

// Catch2 2 (Debian 12) and 3 (elsewhere) keep their headers in different places.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
