#include "parallel/step/wait_times.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

bool is_direct(const TransferRecord& record) {
  return record.kind == Kind::send || record.kind == Kind::receive;
}

// The sends to one peer, or the receives from it, in order. The k-th of them is the peer's k-th of
// the other kind.
struct Lane {
  int peer = -1;
  Kind kind = Kind::send;
  std::vector<std::size_t> positions{};  // in the list of records
  std::vector<double> own{};             // when this rank submitted each
  std::vector<double> theirs{};          // when the peer did
};

std::vector<Lane> lanes_of(const std::vector<TransferRecord>& records) {
  std::map<std::pair<int, Kind>, Lane> lanes;
  for (std::size_t i = 0; i < records.size(); ++i) {
    Lane& lane = lanes[{records[i].peer, records[i].kind}];
    lane.peer = records[i].peer;
    lane.kind = records[i].kind;
    lane.positions.push_back(i);
    lane.own.push_back(records[i].submitted);
    lane.theirs.push_back(0.0);
  }
  std::vector<Lane> list;
  list.reserve(lanes.size());
  for (auto& [key, lane] : lanes) {
    list.push_back(std::move(lane));
  }
  return list;
}

void add_wait(const Wait& wait, StepWaits& waits) {
  waits.transfers.push_back(wait);
  const TransferRecord& record = wait.record;
  if (record.wait_begin == 0.0 || record.wait_end <= record.wait_begin) {
    return;
  }
  const double submitted = std::clamp(wait.peers_submitted, record.wait_begin, record.wait_end);
  const double exposed = record.wait_end - submitted;
  waits.bubble += submitted - record.wait_begin;
  waits.exposed += exposed;
  if (wait.axis < waits.axes.size()) {
    waits.axes[wait.axis].exposed += exposed;
  }
}

}  // namespace

// Messages are under way between buffers of this object from construction to finish().
struct WaitTimes::Exchange {
  Exchange(Communicator& group, std::size_t axis_of_group, std::vector<TransferRecord> taken)
      : axis(axis_of_group), records(std::move(taken)) {
    if (axis == kOuterAxis) {  // workers tell each other nothing in a step
      return;
    }
    !records.empty() && is_direct(records.front()) ? tell_peers(group) : tell_all(group);
  }

  // When the last rank submitted each collective, or the peer the other end of each send or
  // receive; 0 where nobody tells. Of an outer round all had submitted it when they agreed on its
  // end, before this rank began to wait.
  [[nodiscard]] std::vector<double> finish() {
    wait_for_all(transfers);
    std::vector<double> last(records.size(), 0.0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      last[i % records.size()] = std::max(last[i % records.size()], all[i]);
    }
    for (const Lane& lane : lanes) {
      for (std::size_t k = 0; k < lane.positions.size(); ++k) {
        last[lane.positions[k]] = lane.theirs[k];
      }
    }
    return last;
  }

  void tell_all(Communicator& group) {
    const std::size_t count = records.size();
    all.assign(count * static_cast<std::size_t>(group.size()), 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      all[static_cast<std::size_t>(group.rank()) * count + i] = records[i].submitted;
    }
    transfers.push_back(group.all_gather(Tensor(std::span(all)), {.what = "times of collectives"}));
  }

  void tell_peers(Communicator& group) {
    constexpr TransferNote kNote{.what = "times of transfers"};
    lanes = lanes_of(records);
    for (Lane& lane : lanes) {
      transfers.push_back(group.send(Tensor(std::span(lane.own)), lane.peer, kNote));
    }
    // Every rank sends its lanes of sends before those of receives: so they arrive.
    for (const Kind theirs : {Kind::send, Kind::receive}) {
      for (Lane& lane : lanes) {
        if (lane.kind != theirs) {
          transfers.push_back(group.receive(Tensor(std::span(lane.theirs)), lane.peer, kNote));
        }
      }
    }
  }

  std::size_t axis = 0;
  std::vector<TransferRecord> records;
  std::vector<double> all{};  // collectives: (ranks, records)
  std::vector<Lane> lanes{};  // sends and receives
  std::vector<Transfer> transfers{};
};

WaitTimes::~WaitTimes() = default;

WaitTimes::WaitTimes(Groups& groups) : groups_(&groups) {
  for (const auto* made : {&groups.tensor,
                           &groups.forward,
                           &groups.backward,
                           &groups.data,
                           &groups.group,
                           &groups.across_groups,
                           &groups.table,
                           &groups.table_pair,
                           &groups.outer}) {
    Communicator* const group = made->get();
    if (group == nullptr || group->size() == 1) {
      continue;
    }
    const auto axis = std::find(kReportedAxes.begin(), kReportedAxes.end(), group->axis());
    SL_CHECK(axis != kReportedAxes.end(), "axis " + group->axis());
    counted_.push_back(
        {.group = group, .axis = static_cast<std::size_t>(axis - kReportedAxes.begin())});
  }
  record_transfers(true);
}

void WaitTimes::record_transfers(bool on) {
  for (const Counted& counted : counted_) {
    counted.group->record_transfers(on);
  }
  groups_->world->record_transfers(on);
}

void WaitTimes::beside_steps(const std::function<void()>& submit) {
  record_transfers(false);
  submit();
  record_transfers(true);
}

void WaitTimes::begin_step() {
  for (Counted& counted : counted_) {
    counted.bytes_before = counted.group->bytes_sent();
    counted.across_before = counted.group->bytes_sent_across();
    static_cast<void>(counted.group->take_records());
  }
  static_cast<void>(groups_->world->take_records());
}

void WaitTimes::end_step() {
  SL_CHECK(exchanges_.empty(), "the step before is not finished");
  waits_ = {};
  exchanges_.reserve(counted_.size() + 1);  // messages are under way to where an exchange stands
  const auto exchange = [&](Communicator& group, std::size_t axis) {
    std::vector<TransferRecord> records = group.take_records();
    group.record_transfers(false);
    exchanges_.emplace_back(group, axis, std::move(records));
    group.record_transfers(true);
  };
  for (const Counted& counted : counted_) {
    StepWaits::Axis& axis = waits_.axes[counted.axis];
    axis.bytes_sent += static_cast<double>(counted.group->bytes_sent() - counted.bytes_before);
    axis.bytes_across +=
        static_cast<double>(counted.group->bytes_sent_across() - counted.across_before);
    exchange(*counted.group, counted.axis);
  }
  exchange(*groups_->world, kReportedAxes.size());
}

StepWaits WaitTimes::finish_step() {
  for (Exchange& exchange : exchanges_) {
    const std::vector<double> last = exchange.finish();
    for (std::size_t i = 0; i < exchange.records.size(); ++i) {
      add_wait({.axis = exchange.axis, .record = exchange.records[i], .peers_submitted = last[i]},
               waits_);
    }
  }
  exchanges_.clear();
  return std::exchange(waits_, {});
}

}  // namespace slackline
