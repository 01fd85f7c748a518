#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/engine/engine.h"
#include "core/comm/hierarchy.h"

namespace slackline {

// What all communicators of one rank share.
struct Endpoint {
  std::shared_ptr<Engine> engine;       // shared by the ranks of a process and their transfers
  std::uint32_t next_communicator = 1;  // 0 is the world
  std::vector<int> nodes{};             // of every rank of the world
  std::vector<int> hosts{};             // likewise
};

// The communicator over an Engine: turns calls into flights and keeps the books.
class EngineCommunicator final : public Communicator {
 public:
  EngineCommunicator(std::shared_ptr<Endpoint> endpoint, Membership membership);

  [[nodiscard]] int rank() const override { return membership_->rank; }

  [[nodiscard]] int size() const override { return static_cast<int>(membership_->members.size()); }

  [[nodiscard]] const std::string& axis() const override { return membership_->axis; }

  Transfer submit(Operation operation) override;

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override;

  [[nodiscard]] std::size_t bytes_sent() const override { return bytes_sent_; }

  [[nodiscard]] std::size_t bytes_sent_across() const override { return bytes_sent_across_; }

  void record_transfers(bool on) override;
  [[nodiscard]] std::vector<TransferRecord> take_records() override;

  [[nodiscard]] double now() const override { return endpoint_->engine->now(); }

  [[nodiscard]] const std::vector<int>& nodes() const override { return nodes_; }

  [[nodiscard]] const std::vector<int>& hosts() const override { return hosts_; }

  void set_links(const Cluster& links) override;
  void set_hierarchy(const Hierarchy& hierarchy) override;

  [[nodiscard]] const Hierarchy& hierarchy() const override { return hierarchy_; }

  void fail(const std::string& reason) override;
  [[nodiscard]] bool has_failed() const override;

  // Ends every process of the world, this one with `code`.
  [[noreturn]] void abort(const std::string& reason, int code);

  [[nodiscard]] Engine& engine() const { return *endpoint_->engine; }

 private:
  // Messages so far between this rank and another, in each direction.
  struct Count {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
  };

  // A sum that begins, and takes scratch, when the window of background messages lets it.
  Transfer background_sum(Operation operation);
  // A message to or from another rank.
  Transfer direct(Piece piece,
                  const TransferNote& note,
                  std::vector<Count>& counts,
                  const TransferWork& work = {});
  Transfer begin(TransferRecord record,
                 std::uint32_t sequence,
                 Moves moves,
                 const TransferWork& work);
  // `flight` has its moves or makes them.
  Transfer begin(std::shared_ptr<Flight> flight,
                 TransferRecord record,
                 std::size_t bytes_across,
                 const TransferWork& work);
  // The smallest communicator id that no member has used.
  [[nodiscard]] std::uint32_t agree_on_id(const std::string& axis, const std::vector<int>& members);

  // Shared by this rank's communicators, which may end in any order.
  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<const Membership> membership_;  // shared with flights
  std::vector<int> nodes_;
  std::vector<int> hosts_;
  Hierarchy hierarchy_{};
  std::vector<Count> direct_;
  std::vector<Count> setup_;
  std::uint32_t collectives_ = 0;
  std::size_t bytes_sent_ = 0;
  std::size_t bytes_sent_across_ = 0;
  bool recording_ = false;
  std::deque<std::shared_ptr<Flight>> recorded_;  // also held by the engine and by handles
};

}  // namespace slackline
