// SPDX-License-Identifier: Apache-2.0
// Statistics of a chunk by a workgroup: the sum of squares in the order of core/rules/reduction.h, and the counts.
#include "workgroup.glsl"
#include "tile.glsl"

const uint64_t kInfinity = 0x7ff0000000000000ul;
shared uint bins[kExponentBins];
shared double tile_sums[64];
shared uint64_t largest[kMostThreads];
shared uint64_t smallest[kMostThreads];
shared int counts[4];
shared int first_nonfinite;

double element_of(const Tile tile, uvec4 g, int k) {
  return tile.bytes == 8 ? double_of(g, k) : double(float_of(tile, g, k));
}

double diagnose_group(const Tile tile, int offset, inout uint64_t most, inout uint64_t least_) {
  double columns[8];
  for (int k = 0; k < 8; ++k) columns[k] = 0.0lf;
  const int rows = rows_of(tile);
  for (int row = 0; row < rows; ++row) {
    const uvec4 g = load_group(tile, row);
    const int valid = valid_of(tile, row);
    for (int k = 0; k < 8; ++k) {
      if (k >= valid) break;
      const uint64_t bits = magnitude_double(element_of(tile, g, k));
      const double x = bits_double(bits);
      if (bits >= kInfinity) {
        atomicAdd(counts[bits == kInfinity ? 0 : 1], 1);
        atomicMin(first_nonfinite, offset + first_of(tile, row) + k);
        continue;
      }
      columns[k] += x * x;
      most = max(most, bits);
      if (bits == 0ul) {
        atomicAdd(counts[2], 1);
        continue;
      }
      if (x < smallest_normal(tile.dtype)) atomicAdd(counts[3], 1);
      least_ = min(least_, bits);
      atomicAdd(bins[exponent_bin(bits)], 1u);
    }
  }
  double sum = columns[0];
  for (int k = 1; k < 8; ++k) {
    if (k < tile.width) sum += columns[k];
  }
  return sum;
}

void diagnose_chunk(const DiagnoseArgs a, int64_t chunk) {
  const Place place = place_of_part(a.plan, chunk, 0);
  const Span data = span_of(a.plan.tensors, place.tensor, place.offset);
  barrier();
  for (int b = THREAD; b < kExponentBins; b += kThreads) bins[b] = 0u;
  if (THREAD < 4) counts[THREAD] = 0;
  if (THREAD == 0) first_nonfinite = 0x7fffffff;
  barrier();
  uint64_t most = 0ul;
  uint64_t least_ = kInfinity;
  const int elements = kTileBytes / data.bytes;
  const int tiles = (place.n + elements - 1) / elements;
  for (int begin = 0; begin < tiles; begin += kThreads / kLanes) {
    const int t = begin + THREAD / kLanes;
    const double sum = join_groups(diagnose_group(tile_of(data, place.n, t), t * elements, most, least_));
    if (THREAD % kLanes == 0 && t < tiles) tile_sums[t] = sum;
  }
  largest[THREAD] = most;
  smallest[THREAD] = least_;
  barrier();
  if (a.histogram != 0ul) {
    for (int b = THREAD; b < kExponentBins; b += kThreads) {
      if (bins[b] != 0u) add_to(a.histogram + uint64_t(place.tensor * kExponentBins + b) * 8ul, bins[b]);
    }
  }
  if (THREAD != 0) return;
  ChunkDiagnosis r;
  r.inf_count = counts[0];
  r.nan_count = counts[1];
  r.zero_count = counts[2];
  r.subnormal_count = counts[3];
  r.first_nonfinite = first_nonfinite == 0x7fffffff ? -1 : first_nonfinite;
  for (int i = 1; i < kThreads; ++i) {
    most = max(most, largest[i]);
    least_ = min(least_, smallest[i]);
  }
  r.amax = bits_double(most);
  r.amin = least_ < kInfinity ? bits_double(least_) : 0.0lf;
  r.sum_sq = 0.0lf;
  for (int t = 0; t < tiles; ++t) r.sum_sq += tile_sums[t];
  store_ChunkDiagnosis(a.out_ + uint64_t(chunk) * kDiagnosisBytes, r);
}

void main() {
  const DiagnoseArgs a = load_DiagnoseArgs(push.args);
  for (int64_t chunk = WORKGROUP; chunk < a.plan.chunk_count; chunk += WORKGROUPS) diagnose_chunk(a, chunk);
}
