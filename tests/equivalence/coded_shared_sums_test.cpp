// Codecs on sums of gradients that a data strategy takes apart: between groups at a step's end, and
// in each pass.

#include <algorithm>
#include <string>
#include <vector>

#include "compress/codec_traits.h"
#include "parallel/plan/class_bytes.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

MeshRun strategy_run(MeshRun run, const std::string& letters) {
  run.parallel.data_strategy = *data_strategy_named(letters);
  return run;
}

CodecSetting quantize(int bits,
                      ScaleOf scale,
                      Rounding rounding = Rounding::nearest,
                      ErrorFeedback error_feedback = ErrorFeedback::immediate) {
  return {.kind = CodecKind::quantize,
          .error_feedback = error_feedback,
          .bits = bits,
          .scale = scale,
          .group = 8,
          .rounding = rounding};
}

bool codes_gradients(const MeshRun& run) {
  const MeshModel::Options options = run.options();
  const std::vector<ClassBytes> classes =
      class_bytes(MeshLists(options.job), options.compression.front().plan);
  return std::ranges::any_of(classes, [](const ClassBytes& row) {
    return row.members.site == schedule::Site::data_gradient && !row.compressed.empty();
  });
}

// Each keeps all elements as they are.
const CodecSetting kLossless{.kind = CodecKind::random_k, .always = true, .ratio = 1.0};

void require_plain_bits(const MeshRun& run, const std::string& letters) {
  const MeshRun plain = strategy_run(run, letters);
  MeshRun coded = compressed(plain, "data_gradient", kLossless);
  if (run.parallel.pipeline == 1 && !plain.parallel.sums_in_passes()) {
    coded.compress.sites["embedding"] = kLossless;
  }
  INFO(letters << ", pipeline " << run.parallel.pipeline << ", tensor " << run.parallel.tensor);
  CHECK(codes_gradients(coded));
  CHECK(bit_differences(run_mesh(coded), run_mesh(plain)) == "");
}

// What such sums lose of all gradients in the first step.
double lost_by(const MeshRun& run, const CodecSetting& setting) {
  MeshRun one = run;
  one.steps = 1;
  return gradient_distance(run_mesh(compressed(one, "data_gradient", setting)), run_mesh(one));
}

}  // namespace

TEST_CASE("a codec that leaves nothing out gives the bits of plain sums") {
  for (const char* letters : {"NNI", "INI", "ING", "NII", "NIG", "III", "IIG", "IGG", "GIG"}) {
    require_plain_bits(grouped_run(1, 1, 4, 2), letters);
    require_plain_bits(grouped_run(1, 2, 4, 2), letters);
  }
  for (const char* letters : {"NGG", "GGG"}) {
    require_plain_bits(grouped_run(1, 1, 3, 0), letters);
    require_plain_bits(grouped_run(1, 2, 2, 0), letters);
  }
  for (const char* letters : {"NIG", "IGG"}) {
    require_plain_bits(grouped_run(2, 1, 4, 2), letters);
  }
  require_plain_bits(grouped_run(1, 1, 2, 0), "IIG");  // one group: its sum is the one of passes
  // Groups of one rank, whose share of a bucket is all of it, but not the memory of passes.
  for (const char* letters : {"NNI", "NII", "NIG", "III", "IIG", "GIG"}) {
    require_plain_bits(grouped_run(1, 1, 2, 1), letters);
    require_plain_bits(grouped_run(1, 2, 2, 1), letters);
  }
}

// Of these one has all sums where the other has its own rows; what is added up is the same.
TEST_CASE("strategies that add up the same shares have the same bits where messages are cut") {
  for (const CodecSetting& setting : {CodecSetting{.kind = CodecKind::cast},
                                      quantize(8, ScaleOf::token),
                                      quantize(4, ScaleOf::channel),
                                      quantize(2, ScaleOf::both),
                                      quantize(2, ScaleOf::group, Rounding::stochastic)}) {
    for (const MeshRun& run : {grouped_run(1, 1, 4, 2), grouped_run(1, 2, 6, 2)}) {
      MeshRun enough = run;
      enough.global_batch = 4 * run.micro_batch * run.parallel.data;
      const auto result = [&](const char* letters, SumWay way = SumWay::gather) {
        CodecSetting by_way = setting;
        by_way.sum = way;
        return run_mesh(compressed(strategy_run(enough, letters), "data_gradient", by_way));
      };
      INFO(short_text(setting) << ", data " << run.parallel.data);
      if (is_summed_in_two_shots(setting)) {
        const MeshRunResult in_two = result("III", SumWay::two_shot);
        const bool three_groups = run.parallel.num_groups() > 2;
        CHECK((bit_differences(result("III"), in_two) != "") == three_groups);
        CHECK(bit_differences(result("NII", SumWay::two_shot), in_two) == "");
      }
      CHECK(bit_differences(result("INI"), result("ING")) == "");
      const MeshRunResult shared = result("III");
      for (const char* letters : {"NII", "NIG", "IIG"}) {
        INFO(letters);
        CHECK(bit_differences(result(letters), shared) == "");
      }
      CHECK(bit_differences(result("NGG"), result("GGG")) == "");
    }
  }
}

TEST_CASE("sums by levels have the bits of strategies that add up the same shares") {
  for (const CodecSetting& setting : {kLossless,
                                      quantize(4, ScaleOf::channel),
                                      CodecSetting{.kind = CodecKind::top_k, .ratio = 0.1}}) {
    for (const int pipeline : {1, 2}) {
      const auto result = [&](const char* letters, bool by_levels) {
        MeshRun run = strategy_run(grouped_run(1, pipeline, 4, 2), letters);
        run.parallel.codes_sums = by_levels;
        return run_mesh(compressed(run, "data_gradient", setting));
      };
      INFO(short_text(setting) << ", pipeline " << pipeline);
      if (pipeline == 1) {  // else NNI adds a tied table up in halves
        CHECK(bit_differences(result("NNN", true), result("NNI", false)) == "");
      }
      const MeshRunResult shared = result("IGG", false);
      CHECK(bit_differences(result("NGG", true), shared) == "");
      CHECK(bit_differences(result("GGG", true), shared) == "");
    }
  }
}

TEST_CASE("what codecs of shared sums lose is what they lose of others") {
  const double once = lost_by(grouped_run(1, 1, 4, 2), quantize(4, ScaleOf::channel));
  for (const char* letters : {"NNI", "NIG", "III", "GGG", "IGG"}) {
    INFO(letters);
    const double lost =
        lost_by(strategy_run(grouped_run(1, 1, 4, 2), letters), quantize(4, ScaleOf::channel));
    // Sums of two groups round half as many messages as those of four ranks, and of shorter
    // columns; those of passes round each micro-batch's.
    CHECK(lost > 0.3 * once);
    CHECK(lost < 1.5 * once);
  }
}

// With feedback the next pass sends what one has rounded off; only the last one's rounding is left.
TEST_CASE("what a sum of passes owes goes from pass to pass") {
  for (const char* letters : {"GGG", "IGG"}) {
    INFO(letters);
    MeshRun run = strategy_run(grouped_run(1, 1, 4, 2), letters);
    run.global_batch = 8 * run.micro_batch * run.parallel.data;
    const auto lost = [&](ErrorFeedback error_feedback) {
      return lost_by(run, quantize(4, ScaleOf::channel, Rounding::nearest, error_feedback));
    };
    // Eight passes round independently: 1 / sqrt(8), and what passes have in common less.
    CHECK(lost(ErrorFeedback::immediate) < 0.6 * lost(ErrorFeedback::none));
  }
}

// Tables of 9 tokens are cut into 5 and 4, so that a share of the bucket begins in another row of
// the positions on each tensor rank, which have to have the same bits of them.
TEST_CASE("what all tensor ranks have is added up alike where shares cut it elsewhere") {
  MeshRun run = strategy_run(grouped_run(2, 1, 4, 2), "NII");
  run.model.vocab = 9;
  run.model.tie_embeddings = false;
  for (const int bits : {2, 8}) {
    const MeshRun coded = compressed(run, "data_gradient", quantize(bits, ScaleOf::channel));
    CHECK(codes_gradients(coded));
    CHECK_NOTHROW(run_mesh(coded));
    CodecSetting two_shot = quantize(bits, ScaleOf::channel);
    two_shot.sum = SumWay::two_shot;
    MeshRun whole = run;
    whole.parallel = {.tensor = 2, .data = 4};
    CHECK_NOTHROW(run_mesh(compressed(whole, "data_gradient", two_shot)));
  }
}

TEST_CASE("a sum of passes is sampled") {
  for (const char* letters : {"GGG", "IGG", "NIG"}) {
    INFO(letters);
    MeshRun run = strategy_run(run_of(1, 1, 4), letters);
    run.parallel.group = 2;
    std::vector<double> owed;  // a number of each class
    run_step(compressed(run, "data_gradient", quantize(2, ScaleOf::channel)),
             [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
               StepSamples samples = *model.channels().take_samples();
               const std::vector<MessageSums> sums = samples.finish();
               if (model.groups().replica() == 0) {
                 for (const MessageSums& one : sums) {
                   owed.push_back(one.residual);
                   CHECK(one.elements > 0.0);
                   CHECK(one.error > 0.0);
                 }
               }
             });
    REQUIRE_FALSE(owed.empty());
    CHECK(owed.front() > 0.0);
  }
}

}  // namespace slackline::testing
