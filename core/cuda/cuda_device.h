#pragma once

#include <memory>
#include <string>

namespace slackline::cuda {

class MemoryPool;

// A device, and where the buffers of the rank that has it come from.
struct RankDevice {
  int index = -1;  // none
  std::shared_ptr<MemoryPool> pool{};
};

// Why this program cannot use a CUDA device here: none in it, no driver, one that is too old, or no
// device. Empty where it can.
[[nodiscard]] std::string obstacle();

// Whether the program has the backend at all.
[[nodiscard]] bool is_built();

// Makes a device the calling thread's, with a pool of its own: ranks of a node take devices in
// turn. Throws DeviceError where there is an obstacle.
void use_device(int rank_on_node);

// What use_device() or adopt_device() made this thread's. For threads that work for another one.
[[nodiscard]] const RankDevice& device_of_thread();
void adopt_device(const RankDevice& device);

// Which device of the host it is, whatever CUDA_VISIBLE_DEVICES says: its place on the bus.
[[nodiscard]] std::string device_id();

// "NVIDIA H200, 132 multiprocessors, 139 GiB". REQUIRES: no obstacle.
[[nodiscard]] std::string device_text();

}  // namespace slackline::cuda
