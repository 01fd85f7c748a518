#include "parallel/wait_times.h"

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

// When the last rank submitted each of the group's collectives, in order.
std::vector<double> last_submissions(Communicator& group,
                                     const std::vector<TransferRecord>& records) {
  const std::size_t count = records.size();
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<double> all(count * size, 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    all[static_cast<std::size_t>(group.rank()) * count + i] = records[i].submitted;
  }
  group.all_gather(Tensor(std::span(all)), {.what = "times of collectives"}).wait();
  std::vector<double> last(count, 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      last[i] = std::max(last[i], all[rank * count + i]);
    }
  }
  return last;
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
  for (auto& [key, lane] : lanes) {
    list.push_back(std::move(lane));
  }
  return list;
}

// When the peer submitted the other end of each send or receive.
std::vector<double> peer_submissions(Communicator& group,
                                     const std::vector<TransferRecord>& records) {
  constexpr TransferNote kNote{.what = "times of transfers"};
  std::vector<Lane> lanes = lanes_of(records);
  std::vector<Transfer> transfers;
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
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  std::vector<double> submitted(records.size(), 0.0);
  for (const Lane& lane : lanes) {
    for (std::size_t k = 0; k < lane.positions.size(); ++k) {
      submitted[lane.positions[k]] = lane.theirs[k];
    }
  }
  return submitted;
}

}  // namespace

WaitTimes::WaitTimes(Groups& groups) : groups_(&groups) {
  add(groups.tensor.get());
  add(groups.forward.get());
  add(groups.backward.get());
  add(groups.data.get());
  add(groups.table.get());
  add(groups.table_pair.get());
  groups.world->record_transfers(true);
}

void WaitTimes::add(Communicator* group) {
  if (group == nullptr || group->size() == 1) {
    return;
  }
  const auto axis = std::find(kReportedAxes.begin(), kReportedAxes.end(), group->axis());
  SL_CHECK(axis != kReportedAxes.end(), "axis " + group->axis());
  group->record_transfers(true);
  counted_.push_back(
      {.group = group, .axis = static_cast<std::size_t>(axis - kReportedAxes.begin())});
}

void WaitTimes::split(Communicator& group,
                      std::size_t axis,
                      const std::vector<TransferRecord>& records,
                      StepWaits& waits) {
  const bool direct = !records.empty() && is_direct(records.front());
  const std::vector<double> last =
      direct ? peer_submissions(group, records) : last_submissions(group, records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const TransferRecord& record = records[i];
    transfers_.push_back({.axis = axis, .record = record, .peers_submitted = last[i]});
    if (record.wait_begin == 0.0 || record.wait_end <= record.wait_begin) {
      continue;
    }
    const double submitted = std::clamp(last[i], record.wait_begin, record.wait_end);
    const double exposed = record.wait_end - submitted;
    waits.bubble += submitted - record.wait_begin;
    waits.exposed += exposed;
    if (axis < waits.axes.size()) {
      waits.axes[axis].exposed += exposed;
    }
  }
}

void WaitTimes::begin_step() {
  for (Counted& counted : counted_) {
    counted.bytes_before = counted.group->bytes_sent();
    static_cast<void>(counted.group->take_records());
  }
  static_cast<void>(groups_->world->take_records());
}

StepWaits WaitTimes::end_step() {
  StepWaits waits;
  transfers_.clear();
  std::vector<std::vector<TransferRecord>> records;
  for (const Counted& counted : counted_) {
    waits.axes[counted.axis].bytes_sent +=
        static_cast<double>(counted.group->bytes_sent() - counted.bytes_before);
    records.push_back(counted.group->take_records());
    counted.group->record_transfers(false);
  }
  const std::vector<TransferRecord> agreement = groups_->world->take_records();
  groups_->world->record_transfers(false);
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    split(*counted_[i].group, counted_[i].axis, records[i], waits);
  }
  split(*groups_->world, kReportedAxes.size(), agreement, waits);
  for (const Counted& counted : counted_) {
    counted.group->record_transfers(true);
  }
  groups_->world->record_transfers(true);
  return waits;
}

}  // namespace slackline
