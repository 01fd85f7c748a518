#pragma once

#include <string>

namespace slackline::cuda {

// Why this program cannot use a CUDA device here: none in it, no driver, one that is too old, or no
// device. Empty where it can.
[[nodiscard]] std::string obstacle();

// Whether the program has the backend at all.
[[nodiscard]] bool is_built();

// Makes a device the calling thread's: ranks of a node take them in turn. Throws DeviceError where
// there is an obstacle.
void use_device(int rank_on_node);

// The device that use_device() or adopt_device() made this thread's; -1: none. For threads that
// work for another one.
[[nodiscard]] int device_of_thread();
void adopt_device(int device);

// Which device of the host it is, whatever CUDA_VISIBLE_DEVICES says: its place on the bus.
[[nodiscard]] std::string device_id();

// "NVIDIA H200, 132 multiprocessors, 139 GiB". REQUIRES: no obstacle.
[[nodiscard]] std::string device_text();

}  // namespace slackline::cuda
