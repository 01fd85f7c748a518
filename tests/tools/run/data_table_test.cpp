#include "tools/run/data_table.h"

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/plan/planned_job.h"

namespace slackline {

using Catch::Contains;

namespace {

// Sequences of 100 tokens each.
class MemoryFile : public TokenFile {
 public:
  explicit MemoryFile(std::uint64_t sequences) : sequences_(sequences), memory_(100 * sequences) {
    tokens_ = TokenArray(std::as_bytes(std::span(memory_)), TokenWidth::four);
  }

  const std::string& path() const override { return path_; }

  std::uint64_t num_sequences() const override { return sequences_; }

  std::uint64_t sequence_start(std::uint64_t sequence) const override { return 100 * sequence; }

 private:
  std::string path_ = "memory";
  std::uint64_t sequences_;
  std::vector<TokenId> memory_;
};

DataMember member(std::uint64_t sequences, double weight) {
  return {.file = std::make_shared<MemoryFile>(2 * sequences),
          .weight = weight,
          .split = "training",
          .first_sequence = sequences,
          .num_sequences = sequences};
}

// 10 steps of 16 samples of 128 tokens, three quarters of them from the first data set.
std::vector<DataTableRow> two_rows() {
  const TrainConfig config = planned_config({R"(data.train=[{"path": "corpus/a", "weight": 3},
                                     {"path": "corpus/b\nb", "weight": 1}])"});
  return data_table(config, std::vector<DataMember>{member(100, 3.0), member(10, 1.0)});
}

}  // namespace

TEST_CASE("the table of data sets has tokens, share, samples and epochs of the whole run") {
  const std::vector<DataTableRow> rows = two_rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].path == "corpus/a");
  CHECK(rows[0].tokens == 10000);
  CHECK(rows[0].share == 0.75);
  CHECK(rows[0].samples == 120);
  CHECK(rows[0].epochs == 120 * 128 / 10000.0);
  CHECK(rows[1].tokens == 1000);
  CHECK(rows[1].samples == 40);
  CHECK(rows[1].epochs == 5.12);
  CHECK(data_table_text(rows) ==
        "data set             tokens     share       samples    epochs\n"
        "corpus/a              10000   75.00 %           120     1.536\n"
        "corpus/b\\nb            1000   25.00 %            40     5.120\n");
}

TEST_CASE("more than four epochs of a data set are a warning") {
  std::vector<DataTableRow> rows = two_rows();
  const std::vector<std::string> warnings = data_table_warnings(rows);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::StartsWith("data.train.1: ") && Contains("5.1 times"));
  rows[1].epochs = 4.0;
  CHECK(data_table_warnings(rows).empty());
}

TEST_CASE("data.json reads back as it was written, and another file is refused") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("data.json");
  const std::vector<DataTableRow> rows = two_rows();
  write_file_atomically(path, data_table_json(rows));
  const std::vector<DataTableRow> read = read_data_table(path);
  REQUIRE(read.size() == 2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(read[i].path == rows[i].path);
    CHECK(read[i].tokens == rows[i].tokens);
    CHECK(read[i].share == rows[i].share);
    CHECK(read[i].samples == rows[i].samples);
    CHECK(read[i].epochs == rows[i].epochs);
  }
  write_file_atomically(path, R"({"train": [{"path": "a", "tokens": 0}]})");
  CHECK_THROWS_WITH(read_data_table(path), Contains("train.0.tokens"));
  CHECK(data_rows_json({}) == "[]");
}

}  // namespace slackline
