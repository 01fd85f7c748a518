#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"

namespace slackline {

// Does what another communicator does. Those that change a few of its calls derive from it.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::shared_ptr<Communicator> real) : real_(std::move(real)) {}

  [[nodiscard]] int rank() const override { return real_->rank(); }

  [[nodiscard]] int size() const override { return real_->size(); }

  [[nodiscard]] const std::string& axis() const override { return real_->axis(); }

  [[nodiscard]] Transfer submit(Operation operation) override {
    return real_->submit(std::move(operation));
  }

  [[nodiscard]] std::unique_ptr<Communicator> group(const std::string& axis,
                                                    const std::vector<int>& members,
                                                    Urgency urgency) override {
    return real_->group(axis, members, urgency);
  }

  [[nodiscard]] std::size_t bytes_sent() const override { return real_->bytes_sent(); }

  [[nodiscard]] std::size_t bytes_sent_across() const override {
    return real_->bytes_sent_across();
  }

  void record_transfers(bool on) override { real_->record_transfers(on); }

  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    return real_->take_records();
  }

  [[nodiscard]] double now() const override { return real_->now(); }

  [[nodiscard]] const std::vector<int>& nodes() const override { return real_->nodes(); }

  [[nodiscard]] const std::vector<int>& hosts() const override { return real_->hosts(); }

  void set_links(const Cluster& links) override { real_->set_links(links); }

  void set_hierarchy(const Hierarchy& hierarchy) override { real_->set_hierarchy(hierarchy); }

  [[nodiscard]] const Hierarchy& hierarchy() const override { return real_->hierarchy(); }

  void fail(const std::string& reason) override { real_->fail(reason); }

  [[nodiscard]] bool has_failed() const override { return real_->has_failed(); }

 protected:
  [[nodiscard]] Communicator& real() const { return *real_; }

  // For what outlives this one.
  [[nodiscard]] const std::shared_ptr<Communicator>& owned() const { return real_; }

 private:
  std::shared_ptr<Communicator> real_;
};

}  // namespace slackline
