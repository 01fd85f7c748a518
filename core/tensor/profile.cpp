#include "core/tensor/profile.h"

#include "core/cuda/ranges.h"

namespace slackline {

void Profile::add(std::string_view name, double seconds) {
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    found = entries_.emplace(std::string(name), Entry{}).first;
  }
  found->second.seconds += seconds;
  ++found->second.calls;
}

ProfileRange::ProfileRange(StreamView stream, std::string_view name)
    : profile_(stream.profile()), on_device_(stream.device() == Device::cuda), name_(name) {
  if (on_device_) {
    cuda::begin_range(std::string(name));
  }
  if (profile_ != nullptr) {
    start_ = std::chrono::steady_clock::now();
  }
}

ProfileRange::~ProfileRange() {
  if (on_device_) {
    cuda::end_range();
  }
  if (profile_ != nullptr) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    profile_->add(name_, elapsed.count());
  }
}

}  // namespace slackline
