// SPDX-License-Identifier: Apache-2.0
// check and unscale: a workgroup looks at a chunk, 32 invocations at a tile of it; the last workgroup joins the chunks.
#include "workgroup.glsl"
#include "tile.glsl"
#include "join.glsl"

shared uint64_t shared_largest[kMostThreads];
shared double tile_sums[64];
shared int inf_count;
shared int nan_count;
shared int first_nonfinite;

/// A group's sum of squares as if the tile were finite, and the bits of the largest magnitude.
double sum_group(const Tile tile, bool in_double, out uint64_t largest) {
  largest = 0ul;
  double sum = 0.0lf;
  const int rows = rows_of(tile);
  if (tile.bytes == 8) {
    double columns[2] = double[2](0.0lf, 0.0lf);
    for (int row = 0; row < rows; ++row) {
      const uvec4 g = load_group(tile, row);
      for (int k = 0; k < 2; ++k) {
        const double x = double_of(g, k);
        columns[k] += x * x;
        largest = max(largest, magnitude_double(x));
      }
    }
    return columns[0] + columns[1];
  }
  float columns[8];
  double wide[8];
  for (int k = 0; k < 8; ++k) {
    columns[k] = 0.0f;
    wide[k] = 0.0lf;
  }
  uint most = 0u;
  for (int row = 0; row < rows; ++row) {
    const uvec4 g = load_group(tile, row);
    for (int k = 0; k < 8; ++k) {
      if (k >= tile.width) break;
      const float x = float_of(tile, g, k);
      if (in_double) {
        wide[k] += double(x) * double(x);
      } else {
        columns[k] += x * x;
        most = max(most, magnitude_float(x));
      }
    }
  }
  largest = uint64_t(most);
  for (int k = 0; k < 8; ++k) {
    if (k >= tile.width) break;
    const double column = in_double ? wide[k] : double(columns[k]);
    sum = k == 0 ? column : sum + column;
  }
  return sum;
}

void count_group(const Tile tile, int offset, float inv_scale, double fp64_limit, inout Nonfinite found) {
  const int rows = rows_of(tile);
  const float limit = limit_float(tile.dtype, kSpecial != 0);
  for (int row = 0; row < rows; ++row) {
    const uvec4 g = load_group(tile, row);
    const int valid = valid_of(tile, row);
    for (int k = 0; k < valid; ++k) {
      const int at = offset + first_of(tile, row) + k;
      if (tile.bytes == 8) {
        judge_double(double_of(g, k), double(inv_scale), fp64_limit, at, found);
      } else {
        judge_float(float_of(tile, g, k), inv_scale, limit, at, found);
      }
    }
  }
}

void scale_group(const Tile tile, float inv_scale) {
  const int rows = rows_of(tile);
  for (int row = 0; row < rows; ++row) {
    const uvec4 g = load_group(tile, row);
    uvec4 scaled = uvec4(0u);
    for (int k = 0; k < 8; ++k) {
      if (k >= tile.width) break;
      if (tile.bytes == 8) {
        const uvec2 halves = unpackDouble2x32(double_of(g, k) * double(inv_scale));
        scaled[2 * k] = halves.x;
        scaled[2 * k + 1] = halves.y;
      } else {
        const uint x = narrow_float(tile.dtype, float_of(tile, g, k) * inv_scale);
        if (tile.bytes == 2) {
          scaled[k >> 1] |= x << (16 * (k & 1));
        } else {
          scaled[k] = x;
        }
      }
    }
    store_group(tile, row, scaled);
  }
}

void look_at_chunk(const CheckArgs a, int64_t chunk, float inv_scale) {
  const Place place = place_of_part(a.plan, chunk, 0);
  const Span data = span_of(a.plan.tensors, place.tensor, place.offset);
  Nonfinite found = Nonfinite(0, 0, 0x7fffffff, 0.0lf);
  barrier();
  if (THREAD == 0) {
    inf_count = 0;
    nan_count = 0;
    first_nonfinite = 0x7fffffff;
  }
  const int elements = kTileBytes / data.bytes;
  const int tiles = (place.n + elements - 1) / elements;
  const int per_round = kThreads / kLanes;
  for (int begin = 0; begin < tiles; begin += per_round) {
    const int t = begin + THREAD / kLanes;
    const Tile tile = tile_of(data, place.n, t);
    uint64_t largest;
    double sum = sum_group(tile, false, largest);
    shared_largest[THREAD] = largest;
    barrier();
    for (int i = THREAD / kLanes * kLanes; i < THREAD / kLanes * kLanes + kLanes; ++i) {
      largest = max(largest, shared_largest[i]);
    }
    bool is_finite_ = true;
    if (data.bytes == 8) {
      is_finite_ = tile_is_finite_double(largest, double(inv_scale), a.fp64_limit);
    } else {
      is_finite_ = tile_is_finite_float(uint(largest), inv_scale, limit_float(data.dtype, kSpecial != 0));
    }
    if (!is_finite_) {
      count_group(tile, t * elements, inv_scale, a.fp64_limit, found);
      sum = 0.0lf;
    } else {
      const double amax = data.bytes == 8 ? bits_double(largest) : double(uintBitsToFloat(uint(largest)));
      if (amax > found.amax) found.amax = amax;
      uint64_t unused;
      if (data.bytes != 8 && !sum_fits(data.dtype, uintBitsToFloat(uint(largest)))) {
        sum = sum_group(tile, true, unused);
      }
    }
    sum = join_groups(sum);
    if (THREAD % kLanes == 0 && t < tiles) tile_sums[t] = sum;
    if (kSpecial != 0) scale_group(tile, inv_scale);
  }
  if (found.inf_count > 0) atomicAdd(inf_count, found.inf_count);
  if (found.nan_count > 0) atomicAdd(nan_count, found.nan_count);
  if (found.first != 0x7fffffff) atomicMin(first_nonfinite, found.first);
  found.amax = join_largest(found.amax);
  if (THREAD != 0) return;
  if (a.found_inf != 0ul && inf_count + nan_count > 0) store_f32(a.found_inf, 1.0f);
  if (a.results == 0ul) return;
  double total = 0.0lf;
  for (int t = 0; t < tiles; ++t) total += tile_sums[t];
  found.inf_count = inf_count;
  found.nan_count = nan_count;
  found.first = first_nonfinite;
  const ChunkResult r = chunk_result(total, found, a.amax_keeps_nonfinite);
  const uint64_t to = a.results + uint64_t(chunk) * kResultBytes;
  store_coherent(to, double_bits(r.sum_sq));
  store_coherent(to + 8ul, double_bits(r.amax));
  store_coherent(to + 16ul, uint64_t(uint(r.inf_count)) | uint64_t(uint(r.nan_count)) << 32);
  store_coherent(to + 24ul, uint64_t(uint(r.first)));
}

shared uint64_t counts[2][kMostThreads];
shared int64_t first_chunks[kMostThreads];

/// The totals of the list, by one workgroup.
void join_list(const CheckArgs a, float inv_scale) {
  const double sum = join_sums(a.results, 0l, a.plan.chunk_count, 0);
  const double amax = join_amax(a.results, 0l, a.plan.chunk_count);
  uint64_t infs = 0ul;
  uint64_t nans = 0ul;
  int64_t first = 0x7fffffffffffffffl;
  for (int64_t i = THREAD; i < a.plan.chunk_count; i += kThreads) {
    const uint64_t both = load_coherent(a.results + uint64_t(i) * kResultBytes + 16ul);
    infs += both & 0xfffffffful;
    nans += both >> 32;
    if (both != 0ul) first = min(first, i);
  }
  counts[0][THREAD] = infs;
  counts[1][THREAD] = nans;
  first_chunks[THREAD] = first;
  barrier();
  if (THREAD != 0) return;
  for (int i = 1; i < kThreads; ++i) {
    infs += counts[0][i];
    nans += counts[1][i];
    first = min(first, first_chunks[i]);
  }
  int offset = -1;
  if (first != 0x7fffffffffffffffl) {
    offset = int(load_coherent(a.results + uint64_t(first) * kResultBytes + 24ul));
  }
  finish_list(a, sum, amax, int64_t(infs), int64_t(nans), first, offset);
}

void main() {
  const CheckArgs a = load_CheckArgs(push.args);
  const float inv_scale = scale_or_one(a.inv_scale);
  for (int64_t chunk = a.first_chunk + WORKGROUP; chunk < a.last_chunk; chunk += WORKGROUPS) {
    look_at_chunk(a, chunk, inv_scale);
  }
  if (a.finish && is_last_workgroup(a.tickets)) join_list(a, inv_scale);
}
