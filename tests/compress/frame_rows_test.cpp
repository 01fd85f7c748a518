#include "compress/frame_rows.h"

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// The middle of the first matrix of kParts, all of the second, the last row of the third.
const std::vector<MatrixRows> kRows = {{.matrix = 0, .first = 3, .last = 30},
                                       {.matrix = 1, .first = 0, .last = 1},
                                       {.matrix = 2, .first = 299, .last = 300}};

std::vector<CodecSetting> settings() {
  std::vector<CodecSetting> all;
  for (const int bits : {2, 3, 4, 8}) {
    for (const ScaleOf scale :
         {ScaleOf::channel, ScaleOf::token, ScaleOf::group, ScaleOf::tensor, ScaleOf::both}) {
      all.push_back({.kind = CodecKind::quantize, .bits = bits, .scale = scale, .group = 8});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a frame of some rows decodes to these rows of the whole frame") {
  const std::vector<CodecPart> own_parts = parts_of_rows(kParts, kRows);
  for (const CodecSetting& setting : settings()) {
    INFO(setting.bits << " bits, scale " << static_cast<int>(setting.scale));
    const auto codec = make_codec(setting, kParts, 0, test_device());
    const auto own = make_codec(setting, own_parts, 0, test_device());
    Stream stream(test_stream(2, codec->workspace_bytes(test_workers(2))));
    Message values = Message::normal_numbers(kParts, 1);
    GuardedTensor frame = empty_frame(*codec);
    codec->encode(stream, values.matrices(), {}, {.seed = 1, .step = 2}, frame);
    // As among others: at an odd byte, longer than it has to be.
    const auto bytes = static_cast<std::int64_t>(own->frame_bytes());
    GuardedTensor slices(DType::u8, {bytes + 9});
    cut_frame(stream, setting, kParts, frame, kRows, slices.view().rows(1, bytes + 6));
    Message whole(kParts);
    Message part(own_parts, 7.0);
    codec->decode(stream, frame, whole.matrices(), false);
    own->decode(stream, slices.view().rows(1, bytes + 1), part.matrices(), false);
    stream.synchronize();
    for (std::size_t i = 0; i < kRows.size(); ++i) {
      const std::vector<double> all = whole.values(kRows[i].matrix);
      const auto columns = kParts[kRows[i].matrix].shape.columns;
      REQUIRE(part.values(i) == std::vector<double>(all.begin() + kRows[i].first * columns,
                                                    all.begin() + kRows[i].last * columns));
    }
    REQUIRE((slices.sentinels_intact() && part.sentinels_intact()));
  }
}

TEST_CASE("quantize and cast are cut by rows, and no other codec") {
  for (const CodecKind kind : {CodecKind::low_rank, CodecKind::top_k, CodecKind::random_k}) {
    REQUIRE_FALSE(traits_of(kind).cuts_by_rows);
    Stream stream(test_stream(1));
    REQUIRE_THROWS_WITH(cut_frame(stream, {.kind = kind}, kParts, {}, kRows, {}),
                        Catch::Contains(name_of(kind)));
  }
  REQUIRE(traits_of(CodecKind::quantize).cuts_by_rows);
  REQUIRE(traits_of(CodecKind::cast).cuts_by_rows);
}

}  // namespace slackline::testing
