// SPDX-License-Identifier: Apache-2.0
//
// That the pool's threads take part: results do not show it, since the calling thread can do all the work.
#include "core/cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

namespace gsc::cpu {
namespace {

/// The threads of a region of two tasks, each of which waits for the other. Ends after a time if one runs both.
std::set<std::thread::id> threads_of_a_region(Parallel &parallel) {
  std::atomic<int> entered{0};
  std::thread::id threads[2];
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel.run(2, [&](int32_t index) {
    threads[index] = std::this_thread::get_id();
    entered.fetch_add(1);
    while (entered.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  return {std::begin(threads), std::end(threads)};
}

TEST(Parallel, WorkersTakePartInEveryRegion) {
  Parallel parallel(2, nullptr, nullptr);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(threads_of_a_region(parallel).size(), 2u) << i;
}

TEST(Parallel, OneThreadNeedsNoPool) {
  Parallel parallel(1, nullptr, nullptr);
  std::set<std::thread::id> threads;
  parallel.run(3, [&](int32_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

}  // namespace
}  // namespace gsc::cpu
