// SPDX-License-Identifier: Apache-2.0
// Joining the results of chunks, in the order of core/rules/reduction.h.

shared double lanes[kFinishLanes];

double result_field(uint64_t results, int64_t chunk, int field) {
  return bits_double(load_coherent(results + uint64_t(chunk) * kResultBytes + uint64_t(field * 8)));
}

/// The sum of a field over chunks [begin, end).
double join_sums(uint64_t results, int64_t begin, int64_t end, int field) {
  barrier();
  for (int lane = THREAD; lane < kFinishLanes; lane += kThreads) {
    double sum = 0.0lf;
    for (int64_t i = begin + lane; i < end; i += kFinishLanes) sum += result_field(results, i, field);
    lanes[lane] = sum;
  }
  barrier();
  for (int width = kFinishLanes / 2; width > 0; width /= 2) {
    for (int lane = THREAD; lane < width; lane += kThreads) lanes[lane] += lanes[lane + width];
    barrier();
  }
  return lanes[0];
}

/// The largest of a number of each invocation. A NaN is the largest.
double join_largest(double x) {
  barrier();
  lanes[THREAD] = x;
  barrier();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (THREAD < width) lanes[THREAD] = larger(lanes[THREAD], lanes[THREAD + width]);
    barrier();
  }
  return lanes[0];
}
double join_amax(uint64_t results, int64_t begin, int64_t end) {
  double amax = 0.0lf;
  for (int64_t i = begin + THREAD; i < end; i += kThreads) amax = larger(amax, result_field(results, i, 1));
  return join_largest(amax);
}
