// SPDX-License-Identifier: Apache-2.0
#pragma once
//
// torch.autocast for the C++ frontend, which has the switches but no guard: operations within its scope run in `dtype`
// where PyTorch's lists say so. A disabled guard changes nothing.
//
#include <ATen/autocast_mode.h>

class Autocast {
 public:
  Autocast(at::DeviceType device, at::ScalarType dtype, bool enabled = true)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        old_dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    if (!enabled) return;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, dtype);
  }
  ~Autocast() {
    // Weights are cast once in a scope; the outermost forgets the copies.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, old_dtype_);
  }
  Autocast(const Autocast &) = delete;
  Autocast &operator=(const Autocast &) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType old_dtype_;
};
