// SPDX-License-Identifier: Apache-2.0
//
// Times of frames, and their table: median, 99th percentile, worst.
#pragma once

#include <algorithm>
#include <cstdio>
#include <vector>

namespace engine {

/// Milliseconds of one part of a frame. Room is made beforehand: add() does not allocate.
class FrameTimes {
 public:
  FrameTimes(const char *name, size_t room) : name_(name) { times_.reserve(room); }
  void add(double milliseconds) {
    if (times_.size() < times_.capacity()) times_.push_back(milliseconds);
  }
  static void print_head() { std::printf("%-34s %7s %9s %9s %9s\n", "milliseconds", "frames", "p50", "p99", "worst"); }
  void print() {
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    const auto at = [this](double share) { return times_[static_cast<size_t>(share * double(times_.size() - 1))]; };
    std::printf("%-34s %7zu %9.3f %9.3f %9.3f\n", name_, times_.size(), at(0.5), at(0.99), times_.back());
  }

 private:
  const char *name_;
  std::vector<double> times_;
};

}  // namespace engine
