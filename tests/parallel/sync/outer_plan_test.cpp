// Who sends what of a model in outer rounds, and when rounds end.

#include "parallel/sync/outer_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "parallel/plan/coded_round.h"
#include "parallel/sync/rank_sync.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

MeshJob job(const ParallelConfig& parallel) {
  return {.model = {.layers = 3, .hidden = 16, .heads = 4, .sequence = 8, .vocab = 37, .ffn = 40},
          .parallel = parallel,
          .micro_batch = {.B = 1, .T = 8},
          .num_micro_batches = 2 * parallel.pipeline};
}

std::vector<SummedPart> matrices_of(const CodedBucket& round) {
  std::vector<SummedPart> matrices;
  for (const CodedSum& sum : round.sums) {
    matrices.insert(matrices.end(), sum.matrices.begin(), sum.matrices.end());
  }
  return matrices;
}

// What a rank's buffers have at each element: how often a matrix and the rest cover it.
std::vector<int> times_covered(const CodedBucket& round, std::size_t elements) {
  std::vector<int> times(elements, 0);
  const auto cover = [&](const SummedPart& part) {
    for (std::size_t i = 0; i < part.elements.count(); ++i) {
      ++times.at(part.first + i);
    }
  };
  std::ranges::for_each(matrices_of(round), cover);
  std::ranges::for_each(round.plain, cover);
  return times;
}

}  // namespace

TEST_CASE("of what travels each element is owned by one worker, in its slice of the transfer") {
  for (const int data : {1, 3}) {
    const RankSync rank(job({.data = data}), {.data = data - 1});
    std::vector<OuterShare> shares = outer_shares(rank.plan.owned);
    // As of a model of several transfers: parts lie apart, and one is longer than a transfer.
    OuterShare large = shares.back();
    large.first = elements_of(shares);
    large.range = {0, kRoundTransferElements + 5};
    shares.push_back(large);
    for (const int workers : {1, 2, 5}) {
      std::vector<int> owners(elements_of(shares), 0);
      std::size_t all = 0;
      for (int worker = 0; worker < workers; ++worker) {
        std::size_t next = 0;
        for (const OwnedTransfer& transfer : owned_transfers(shares, worker, workers)) {
          std::size_t at = transfer.own.begin;
          CHECK(transfer.own.begin >= transfer.elements.begin);
          CHECK(transfer.own.end <= transfer.elements.end);
          for (const OuterShare& part : transfer.shares) {
            CHECK(part.first == next);
            next += part.range.count();
            for (std::size_t i = 0; i < part.range.count(); ++i, ++at) {
              ++owners[at];
            }
            const auto whole = std::ranges::find_if(shares, [&](const OuterShare& share) {
              return share.first <= at - 1 && at - 1 < share.first + share.range.count();
            });
            REQUIRE(whole != shares.end());
            CHECK(part.piece == whole->piece);
            CHECK(part.range.end - whole->range.begin == at - whole->first);
          }
          CHECK(at == transfer.own.end);
        }
        CHECK(elements_of(owned_shares(shares, worker, workers)) == next);
        all += next;
      }
      CHECK(all == owners.size());
      CHECK(std::ranges::all_of(owners, [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("fragments are about as large, in the order of parameters, and none cuts a parameter") {
  const std::vector<ParameterSpec> table = parameter_table(job({}).model);
  for (const int count : {1, 2, 3, 5}) {
    const std::vector<int> fragments = fragments_of(table, count);
    REQUIRE(fragments.size() == table.size());
    CHECK(std::ranges::is_sorted(fragments));
    std::vector<double> elements(static_cast<std::size_t>(count), 0.0);
    double largest = 0.0;
    double all = 0.0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto own = static_cast<double>(table[i].shape.num_elements());
      elements[static_cast<std::size_t>(fragments[i])] += own;
      largest = std::max(largest, own);
      all += own;
    }
    for (const double of_fragment : elements) {
      CHECK(of_fragment > 0.0);
      CHECK(std::abs(of_fragment - all / count) <= largest);
    }
  }
}

TEST_CASE("shares follow one another, fragment by fragment") {
  const RankSync rank(job({}), {});
  std::vector<int> fragments;
  for (std::size_t i = 0; i < rank.plan.owned.size(); ++i) {
    fragments.push_back(static_cast<int>(i % 3));
  }
  const std::vector<OuterShare> shares = outer_shares(rank.plan.owned, fragments);
  CHECK(shares.size() == rank.plan.owned.size());
  CHECK(std::ranges::is_sorted(shares, {}, &OuterShare::fragment));
  std::size_t next = 0;
  for (const OuterShare& share : shares) {
    CHECK(share.first == next);
    CHECK(share.fragment == fragments[share.piece]);
    next += share.range.count();
  }
  CHECK(next == elements_of(outer_shares(rank.plan.owned)));
}

TEST_CASE("a coded round has every element once, matrices coded and the rest packed") {
  ParallelConfig shared;
  shared.data = 3;
  shared.data_strategy = *data_strategy_named("NII");  // shares that end inside of rows
  const RankSync rank(job(shared), {.data = 1});
  const std::vector<OuterShare> shares = outer_shares(rank.plan.owned);
  for (const CodecSetting& setting :
       {CodecSetting{.kind = CodecKind::top_k, .ratio = 0.1},
        CodecSetting{.kind = CodecKind::low_rank, .always = true, .rank = 2}}) {
    const CodedBucket round = coded_round(shares, rank.plan.owned, setting, {.workers = 2});
    const std::vector<int> times = times_covered(round, elements_of(shares));
    CHECK(std::ranges::all_of(times, [](int count) { return count == 1; }));
    const std::vector<SummedPart> matrices = matrices_of(round);
    REQUIRE_FALSE(matrices.empty());
    std::set<std::string> names;
    for (const SummedPart& matrix : matrices) {
      const auto share = std::ranges::find_if(shares, [&](const OuterShare& candidate) {
        return candidate.first <= matrix.first &&
               matrix.first < candidate.first + candidate.range.count();
      });
      REQUIRE(share != shares.end());
      const Parameter& parameter = *rank.plan.owned[share->piece].parameter;
      const Shape& shape = matrix.shape;
      CHECK(matrix.parameter == &parameter);
      CHECK(parameter.shard.shape.rank() == 2);
      CHECK(shape.num_elements() == matrix.elements.count());
      CHECK(matrix.elements.begin == matrix.first - share->first + share->range.begin);
      if (setting.kind == CodecKind::low_rank) {
        CHECK(shape[1] == parameter.shard.shape[1]);
        CHECK(matrix.elements.begin % static_cast<std::size_t>(shape[1]) == 0);
      } else {
        CHECK(shape[0] == 1);
        CHECK(matrix.elements.count() == share->range.count());
      }
      names.insert(matrix.name());
    }
    CHECK(names.size() == matrices.size());  // by which they draw numbers of their own
  }
}

TEST_CASE("a period that a run chooses hides the round with a tenth to spare, and stays for long") {
  CHECK(chosen_period(1.0, 0.1, 4) == 11);
  CHECK(chosen_period(1.0, 0.1, 12) == 12);  // hides it
  CHECK(chosen_period(1.0, 0.1, 16) == 16);
  CHECK(chosen_period(1.0, 0.1, 17) == 11);  // half as long again as needed
  CHECK(chosen_period(0.01, 0.1, 1) == 1);
}

}  // namespace slackline
