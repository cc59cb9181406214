// SPDX-License-Identifier: Apache-2.0
// check and unscale on the device: one pass that finds inf and NaN, the largest magnitude and the sum of squares, in
// the order of reduction.h and with the decisions of the CPU's check_kernel.h, so that both give the same bits. One
// warp per tile, one 16-byte group of every row per lane; the last block of the launch joins the chunks and concludes.
#include "core/cuda/check.h"
#include "core/cuda/launch.cuh"
#include "core/cuda/tile.cuh"
#include "core/rules/check.h"

namespace gsc::cuda {

// Resident blocks, and loads in flight per lane. Before Hopper the kernel needs too many registers for four blocks.
// With more of either the code for sm_120 spills, whose multiprocessors have less than half of Hopper's bandwidth each.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr int kCheckResident = 3;
inline constexpr int kLoadsInFlight = 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kCheckResident = 3;
inline constexpr int kLoadsInFlight = 4;
#else
inline constexpr int kCheckResident = 4;
inline constexpr int kLoadsInFlight = 4;
#endif

// For tiles that are misaligned or end in mid-row, which would spill with as many as above.
inline constexpr int kUnevenBatch = kLoadsInFlight - 1;

// Whether an instruction compares two 16-bit numbers with two others.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kMaxOfHalves = false;
#else
inline constexpr bool kMaxOfHalves = true;
#endif

/// A warp's results for its tiles of a chunk.
struct WarpStat {
  double amax;  ///< largest finite magnitude
  bool inf;
  bool nan;
};

/// The largest magnitude of the groups that a lane adds.
template <typename D, bool InHalves = kMaxOfHalves && sizeof(typename D::Stored) == 2>
struct Largest {
  typename Tile<D>::Bits bits = 0;
  GSC_DEVICE void add(const Words<16> &g) {
#pragma unroll
    for (int k = 0; k < Tile<D>::kWidth; ++k) {
      const auto next = magnitude_bits(element_of<D>(g, k));
      bits = next > bits ? next : bits;
    }
  }
  GSC_DEVICE typename Tile<D>::Bits of_warp() const { return warp_max(bits); }
};

/// Two 16-bit elements at once: their magnitudes have the order of their bits too.
template <typename D>
struct Largest<D, true> {
  uint32_t halves = 0;
  GSC_DEVICE void add(const Words<16> &g) {
#pragma unroll
    for (int i = 0; i < 4; ++i) halves = max_halves(halves, g.w[i] & 0x7fff7fffU);
  }
  GSC_DEVICE typename Tile<D>::Bits of_warp() const {
    const uint32_t one = warp_max(greatest(halves & 0xffffU, halves >> 16));
    return magnitude_bits(Converter<D>::widen(static_cast<uint16_t>(one)));
  }
};

/// Column sums of a tile as if it were finite; returns the bits of the warp's largest magnitude.
template <typename D, bool Once>
GSC_DEVICE typename Tile<D>::Bits sum_columns(const Tile<D> &tile, typename D::Value *columns) {
  using Value = typename D::Value;
  constexpr int kWidth = Tile<D>::kWidth;
  constexpr int kBatch = kLoadsInFlight;
  Largest<D> largest;
  const int rows = tile.rows();
  const bool whole = tile.shift == 0 && tile.n % (kRowBytes / Tile<D>::kSize) == 0;
  const auto add = [&](const Words<16> &g) {
    largest.add(g);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const Value x = element_of<D>(g, k);
      columns[k] += x * x;
    }
  };
  int row = 0;
  for (; whole && row + kBatch <= rows; row += kBatch) {
    Words<16> g[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) g[r] = Once ? load_once(tile.group(row + r)) : load_words<16>(tile.group(row + r));
#pragma unroll
    for (int r = 0; r < kBatch; ++r) add(g[r]);
  }
  Words<16> g[kUnevenBatch];
  const auto add_rest = [&](const auto &load) {
    for (; row < rows; row += kUnevenBatch) {
      load();
#pragma unroll
      for (int r = 0; r < kUnevenBatch; ++r) add(g[r]);
    }
  };
  if (tile.shift == 0) {
    add_rest([&] { tile.template load_rows<Once>(row, g); });
  } else if (tile.shift < 4) {
    if constexpr (Tile<D>::kSize < 4) add_rest([&] { tile.template load_misaligned_rows<Once, 0>(row, g); });
  } else if (tile.shift < 8) {
    if constexpr (Tile<D>::kSize < 8) add_rest([&] { tile.template load_misaligned_rows<Once, 1>(row, g); });
  } else if (tile.shift < 12) {
    add_rest([&] { tile.template load_misaligned_rows<Once, 2>(row, g); });
  } else if constexpr (Tile<D>::kSize < 8) {
    add_rest([&] { tile.template load_misaligned_rows<Once, 3>(row, g); });
  }
  return largest.of_warp();
}

/// The same sum with columns in double, for magnitudes whose squares would overflow or underflow fp32.
template <typename D>
GSC_DEVICE double sum_tile_wide(const Tile<D> &tile) {
  constexpr int kWidth = Tile<D>::kWidth;
  double columns[kWidth] = {};
  for (int row = 0; row < tile.rows(); ++row) {
    const Words<16> g = tile.load(row);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const double x = static_cast<double>(element_of<D>(g, k));
      columns[k] += x * x;
    }
  }
  return fold<kWidth>(columns);
}

/// A tile with non-finite elements or results: counts them and finds the first.
template <typename D>
GSC_DEVICE void count_nonfinite(const Tile<D> &tile, int offset, int64_t chunk, typename D::Value inv_scale,
                                typename D::Value limit, const CheckParams &p, WarpStat &stat) {
  using Value = typename D::Value;
  using Bits = typename Tile<D>::Bits;
  constexpr int kWidth = Tile<D>::kWidth;
  Bits largest = 0;
  int nonfinite = 0;
  int nans = 0;
  int first = INT32_MAX;
  for (int row = 0; row < tile.rows(); ++row) {
    const Words<16> g = tile.load(row);
    const int count = tile.valid(row);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (k >= count) continue;
      const Value x = element_of<D>(g, k);
      const Value scaled = x * inv_scale;
      const Bits bits = magnitude_bits(x);
      const bool bad = is_nonfinite(bits, magnitude(magnitude_bits(scaled)), limit);
      nonfinite += bad ? 1 : 0;
      nans += counts_as_nan(bits, scaled) ? 1 : 0;
      if (bits < Tile<D>::kInf && bits > largest) largest = bits;
      if (bad) first = least(first, offset + (row * kGroups + tile.lane) * kWidth + k);
    }
  }
  nonfinite = warp_sum(nonfinite);
  nans = warp_sum(nans);
  first = warp_min(first);
  const auto amax = static_cast<double>(magnitude(warp_max(largest)));
  stat.amax = amax > stat.amax ? amax : stat.amax;
  stat.inf = stat.inf || nonfinite > nans;
  stat.nan = stat.nan || nans > 0;
  if (tile.lane != 0 || nonfinite == 0) return;
  if (p.counters != nullptr) {
    add_to(&p.counters->inf, nonfinite - nans);
    add_to(&p.counters->nan, nans);
    raise_to(&p.counters->before_first, kNoOffender - offender_key(chunk, first));
  }
  if (p.found_inf != nullptr) *p.found_inf = 1.0F;
}

template <typename D>
GSC_DEVICE void scale_tile(const Tile<D> &tile, typename D::Value factor) {
  constexpr int kWidth = Tile<D>::kWidth;
  constexpr int kSize = Tile<D>::kSize;
  for (int row = 0; row < tile.rows(); ++row) {
    const int count = tile.valid(row);
    const Words<16> g = tile.load(row);
    Words<16> out = {};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) put_element<D>(out, k, element_of<D>(g, k) * factor);
    char *p = const_cast<char *>(tile.group(row));
    if (tile.shift == 0 && count == kWidth) {
      store_words<16>(p, out);
      continue;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (k >= count) continue;
      if constexpr (kSize < 4) {
        Words<kSize> one;
        one.w[0] = out.w[k / (4 / kSize)] >> (8 * kSize * (k % (4 / kSize)));
        store_words<kSize>(p + k * kSize, one);
      } else if constexpr (kSize == 4) {
        reinterpret_cast<uint32_t *>(p)[k] = out.w[k];
      } else {
        reinterpret_cast<double *>(p)[k] = element_of<D>(g, k) * factor;
      }
    }
  }
}

/// This warp's tiles of a chunk; their sums go to sums[tile].
template <typename D, bool Write>
GSC_DEVICE WarpStat look_at_chunk(char *data, int n, int64_t chunk, const Team &team, float inv_scale_word,
                                  const CheckParams &p, double *sums) {
  using Value = typename D::Value;
  constexpr int kElements = Tile<D>::kElements;
  const Value inv_scale = static_cast<Value>(inv_scale_word);
  const Value limit = finite_limit<D, Write>(p.fp64_limit);
  WarpStat stat = {0.0, false, false};
  if (n == 0) return stat;
  // Teams begin at different rounds of their chunks: else the addresses in flight agree in a bit or two, and the
  // memory's channels are not equally busy. The order of the tiles does not matter, only that of their sums.
  const int rounds = ((n + kElements - 1) / kElements + team.warps - 1) / team.warps;
  int round = static_cast<int>(static_cast<unsigned>(chunk) % static_cast<unsigned>(rounds));
  for (int i = 0; i < rounds; ++i, round = round + 1 < rounds ? round + 1 : 0) {
    const int t = round * team.warps + team.warp;
    if (t * kElements >= n) continue;
    const Tile<D> tile{data + t * kTileBytes, least(n - t * kElements, kElements), team.lane, Tile<D>::shift_of(data)};
    Value columns[Tile<D>::kWidth] = {};
    const auto bits = sum_columns<D, !Write>(tile, columns);
    const Value largest = magnitude(bits);
    const Value scaled = largest * inv_scale;
    double sum = 0.0;
    if (!is_finite_tile(magnitude(magnitude_bits(scaled)), limit)) {
      count_nonfinite(tile, t * kElements, chunk, inv_scale, limit, p, stat);
    } else {
      bool safe = true;
      if constexpr (!D::kSquaresFit) safe = squares_fit(largest);
      sum = safe ? fold<Tile<D>::kWidth>(columns) : sum_tile_wide(tile);
      const auto amax = static_cast<double>(largest);
      stat.amax = amax > stat.amax ? amax : stat.amax;
    }
    if (team.lane == 0) sums[t] = sum;
    if constexpr (Write) scale_tile(tile, inv_scale);
  }
  return stat;
}

/// Loads both numbers of a chunk at once.
GSC_DEVICE ChunkSum load_chunk_sum(const ChunkPartial *partial) {
  const Words<16> w = load_words<16>(reinterpret_cast<const char *>(partial));
  return {element_of<Fp64>(w, 0), element_of<Fp64>(w, 1)};
}

/// The totals of a list from its chunks, and the conclusions. Called by all threads of one block.
GSC_DEVICE void join_chunks(const CheckParams &p, float inv_scale) {
  __shared__ double largest[kWarps];
  const ChunkPartial *partials = p.partials;
  double amax = 0.0;
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < p.plan.chunk_count; i += kThreads) {
    const ChunkSum part = load_chunk_sum(partials + i);
    amax = part.amax > amax ? part.amax : amax;
    sum += part.sum_sq;
  }
  amax = warp_max(amax);
  if (lane_index() == 0) largest[warp_index()] = amax;
  sum = block_join(sum);
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) amax = largest[w] > amax ? largest[w] : amax;
  CheckCounters &c = *p.counters;
  CheckTotals totals = {sum, amax, c.inf, c.nan, -1, -1};
  if (c.before_first != 0) {
    const int64_t key = kNoOffender - c.before_first;
    const int64_t chunk = offender_chunk(key);
    const int64_t tensor = whole_chunk(p.plan, chunk).tensor;
    totals.first_tensor = tensor;
    totals.first_element = ((chunk - p.plan.tensors[tensor].first_chunk) << p.plan.chunk_shift) + offender_offset(key);
  }
  finish_check(*p.record, totals, inv_scale);
  c.inf = 0;
  c.nan = 0;
  c.before_first = 0;
  if (p.conclude) conclude_check(*p.record, p.rule, nullptr);
}

template <bool Write>
__global__ void __launch_bounds__(kThreads, kCheckResident) check_kernel(const __grid_constant__ CheckParams p) {
  // Double-buffered, so that one barrier per round is enough: leaders read one half while the others fill the other.
  __shared__ double tile_sums[2][kWarps][kMaxTiles];
  __shared__ WarpStat stats[2][kWarps];
  const Team team = make_team(p.plan.warps_per_chunk);
  const float inv_scale = p.inv_scale != nullptr ? *p.inv_scale : 1.0F;
  int half = 0;
  for (int64_t base = p.first_chunk + static_cast<int64_t>(blockIdx.x) * team.count; base < p.last_chunk;
       base += static_cast<int64_t>(gridDim.x) * team.count, half ^= 1) {
    const int64_t chunk = base + team.index;
    double *sums = tile_sums[half][team.index];
    Place place{};
    int32_t dtype = 0;
    if (chunk < p.last_chunk) {
      const Part part = whole_chunk(p.plan, chunk);
      const DeviceTensor &t = p.plan.tensors[part.tensor];
      place = place_of(p.plan, part, t);
      dtype = t.dtype;
      char *data = address(t, place.offset);
      const WarpStat stat = with_dtype(dtype, [&](auto d) {
        return look_at_chunk<decltype(d), Write>(data, place.n, chunk, team, inv_scale, p, sums);
      });
      if (team.lane == 0) stats[half][warp_index()] = stat;
    }
    __syncthreads();
    if (chunk < p.last_chunk && team.leads() && p.partials != nullptr) {
      const int elements = kTileBytes / static_cast<int>(dtype_bytes(dtype));
      double sum = 0.0;
      for (int t = 0; t * elements < place.n; ++t) sum += sums[t];
      WarpStat all = stats[half][warp_index()];
      for (int w = 1; w < team.warps; ++w) {
        const WarpStat &other = stats[half][warp_index() + w];
        all.amax = other.amax > all.amax ? other.amax : all.amax;
        all.inf = all.inf || other.inf;
        all.nan = all.nan || other.nan;
      }
      if (all.inf) sum = magnitude(Tile<Fp64>::kInf);
      if (all.nan) sum = from_bits(uint64_t{0x7ff8000000000000U});
      if (p.amax_keeps_nonfinite && (all.inf || all.nan)) all.amax = sum;
      p.partials[chunk].sum = {sum, all.amax};
    }
  }
  if (!p.finish || !is_last_block(&p.counters->check_ticket)) return;
  join_chunks(p, inv_scale);
}

/// Clears the counts of an unfinished check.
static __global__ void reset_counters_kernel(CheckCounters *counters) {
  counters->inf = 0;
  counters->nan = 0;
  counters->before_first = 0;
}

cudaError_t preload_check() { return preload_all(check_kernel<false>, check_kernel<true>, reset_counters_kernel); }

cudaError_t count_check_blocks(int &blocks) {
  int unscaling = 0;
  cudaError_t result = count_blocks(blocks, check_kernel<false>, kThreads);
  if (result == cudaSuccess) result = count_blocks(unscaling, check_kernel<true>, kThreads);
  blocks = std::max(1, std::min(blocks, unscaling));
  return result;
}

cudaError_t launch_check(const CheckParams &p, bool unscale, int64_t slots, cudaStream_t stream) {
  const int64_t blocks = blocks_for(p.last_chunk - p.first_chunk, p.plan.warps_per_chunk, slots);
  return enqueue(unscale ? check_kernel<true> : check_kernel<false>, blocks, kThreads, stream, p);
}

cudaError_t launch_reset_counters(CheckCounters *counters, cudaStream_t stream) {
  return enqueue(reset_counters_kernel, 1, 1, stream, counters);
}

}  // namespace gsc::cuda
