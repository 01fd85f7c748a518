// What is known of codecs' errors: what was measured, of the class, of its site, or what is
// expected.

#include "parallel/plan/codec_errors.h"

#include <cmath>

#include "compress/expected_error.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

constexpr TransferClass kFirst{Site::data_gradient, 0, Phase::tail};
constexpr TransferClass kSecond{Site::data_gradient, 1, Phase::tail};
constexpr TransferClass kThird{Site::data_gradient, 2, Phase::tail};
constexpr TransferClass kForward{Site::pipeline_forward, 0, Phase::steady};
constexpr MatrixShape kShape{.rows = 64, .columns = 64};
const CodecSetting kRank{.rank = 4};
const CodecSetting kBits{.kind = CodecKind::quantize, .bits = 4};

}  // namespace

TEST_CASE("a class has what was tried on it, the last of several, of that codec alone") {
  CodecErrors errors;
  CHECK_FALSE(errors.measured(kFirst, kRank));
  errors.note_trial({.members = kFirst, .codec = kRank, .relative_error = 0.5});
  errors.note_trial({.members = kFirst, .codec = kBits, .relative_error = 0.1});
  errors.note_trial({.members = kFirst, .codec = kRank, .relative_error = 0.25});
  CHECK(errors.of(kFirst, kRank, kShape) == 0.25);
  CHECK(errors.of(kFirst, kBits, kShape) == 0.1);
  CHECK(errors.measured(kFirst, kBits) == 0.1);
  CHECK(errors.tried().size() == 2);
}

TEST_CASE("a class on which nothing was tried has the mean of its site, another site does not") {
  CodecErrors errors;
  errors.note_trial({.members = kFirst, .codec = kRank, .relative_error = 0.25});
  errors.note_trial({.members = kSecond, .codec = kRank, .relative_error = 0.5});
  CHECK(errors.measured(kThird, kRank) == 0.375);
  CHECK_FALSE(errors.measured(kForward, kRank));
  CHECK(errors.of(kThird, kRank, kShape) == 0.375);
  CHECK(errors.of(kForward, kRank, kShape) == expected_error(kRank, kShape));
  CodecSetting integers{.kind = CodecKind::quantize, .bits = 4};
  errors.note_trial({.members = kForward, .codec = integers, .relative_error = 0.2});
  integers.sum = SumWay::two_shot;  // the same calls, twice
  CHECK(errors.of(kForward, integers, kShape) == Approx(0.2 * std::sqrt(2.0)));
}

TEST_CASE(
    "of codecs that leave out the same again, more is expected to be owed than is lost once") {
  CodecErrors errors;
  CodecSetting owing_rank = kRank;
  owing_rank.error_feedback = ErrorFeedback::immediate;
  CodecSetting owing_bits = kBits;
  owing_bits.error_feedback = ErrorFeedback::immediate;
  errors.note_trial({.members = kFirst, .codec = owing_rank, .relative_error = 0.125});
  errors.note_trial({.members = kFirst, .codec = owing_bits, .relative_error = 0.125});
  CHECK(errors.measured(kFirst, owing_rank) == 2.5);
  CHECK(errors.measured(kFirst, owing_bits) == 0.125);
  CHECK(errors.of(kFirst, owing_rank, kShape) == Approx(12.5));  // of a fifth of the bound
  CHECK(errors.of(kFirst, owing_bits, kShape) == 0.125);
  errors.note_sample({.members = kFirst, .codec = owing_rank, .relative_error = 0.25});
  CHECK(errors.measured(kFirst, owing_rank) == 0.25);
}

TEST_CASE("sums that leave the same out again may owe a fifth of the bound of their site") {
  const auto bound = [](const TransferClass& members, CodecSetting codec, ErrorFeedback feedback) {
    codec.error_feedback = feedback;
    return error_bound(members, codec, 0.5);
  };
  CHECK(bound(kFirst, kRank, ErrorFeedback::immediate) == 0.1);
  CHECK(bound(kFirst, kRank, ErrorFeedback::none) == 0.5);
  CHECK(bound(kFirst, kBits, ErrorFeedback::immediate) == 0.5);
  CHECK(bound(kForward, kRank, ErrorFeedback::immediate) == 0.5);
}

TEST_CASE("a sample is what is compared with bounds, and changes no order of codecs") {
  CodecErrors errors;
  errors.note_trial({.members = kFirst, .codec = kRank, .relative_error = 0.25});
  errors.note_sample({.members = kFirst, .codec = kRank, .relative_error = 1.5});
  errors.note_sample({.members = kFirst, .codec = kRank, .relative_error = 1.25});
  CHECK(errors.measured(kFirst, kRank) == 1.25);
  CHECK(errors.of(kFirst, kRank, kShape) == 0.25);
  CHECK(errors.measured(kSecond, kRank) == 0.25);
  CHECK(errors.sampled().size() == 1);
}

}  // namespace slackline
