// SPDX-License-Identifier: Apache-2.0
// A tile of a chunk: an invocation has one 16-byte group of every row (core/rules/reduction.h).

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Ref_group { uvec4 v; };

struct Tile {
  uint64_t data;  ///< first element
  int n;          ///< elements
  int lane;
  int dtype;
  int bytes;  ///< of an element
  int width;  ///< elements of a group
};
/// Tile `t` of a chunk of n elements.
Tile tile_of(const Span chunk, int n, int t) {
  const int elements = kTileBytes / chunk.bytes;
  const int left = clamp(n - t * elements, 0, elements);
  return Tile(chunk.data + uint64_t(t * kTileBytes), left, THREAD % kLanes, chunk.dtype, chunk.bytes,
              kGroupBytes / chunk.bytes);
}
int rows_of(const Tile tile) { return (tile.n * tile.bytes + kRowBytes - 1) / kRowBytes; }
/// The first element of this invocation's group, and how many of the group exist.
int first_of(const Tile tile, int row) { return (row * kGroups + tile.lane) * tile.width; }
int valid_of(const Tile tile, int row) { return clamp(tile.n - first_of(tile, row), 0, tile.width); }

/// A group of a row; elements that do not exist are 0.
uvec4 load_group(const Tile tile, int row) {
  const uint64_t p = tile.data + uint64_t(first_of(tile, row) * tile.bytes);
  const int valid = valid_of(tile, row);
  if (valid == tile.width && (p & 15ul) == 0ul) return Ref_group(p).v;
  uvec4 g = uvec4(0u);
  for (int k = 0; k < valid; ++k) {
    if (tile.bytes == 2) {
      g[k >> 1] |= load_u16(p + uint64_t(2 * k)) << (16 * (k & 1));
    } else if (tile.bytes == 4) {
      g[k] = load_u32(p + uint64_t(4 * k));
    } else {
      g[2 * k] = load_u32(p + uint64_t(8 * k));
      g[2 * k + 1] = load_u32(p + uint64_t(8 * k + 4));
    }
  }
  return g;
}
void store_group(const Tile tile, int row, uvec4 g) {
  const uint64_t p = tile.data + uint64_t(first_of(tile, row) * tile.bytes);
  const int valid = valid_of(tile, row);
  if (valid == tile.width && (p & 15ul) == 0ul) {
    Ref_group(p).v = g;
    return;
  }
  for (int k = 0; k < valid; ++k) {
    if (tile.bytes == 2) {
      store_u16(p + uint64_t(2 * k), g[k >> 1] >> (16 * (k & 1)) & 0xffffu);
    } else if (tile.bytes == 4) {
      store_u32(p + uint64_t(4 * k), g[k]);
    } else {
      store_u32(p + uint64_t(8 * k), g[2 * k]);
      store_u32(p + uint64_t(8 * k + 4), g[2 * k + 1]);
    }
  }
}

uint stored_of(const Tile tile, uvec4 g, int k) {
  return tile.bytes == 2 ? g[k >> 1] >> (16 * (k & 1)) & 0xffffu : g[k];
}
float float_of(const Tile tile, uvec4 g, int k) { return widen_float(tile.dtype, stored_of(tile, g, k)); }
double double_of(uvec4 g, int k) { return packDouble2x32(uvec2(g[2 * k], g[2 * k + 1])); }

shared double group_sums[kMostThreads];
/// The sum of the groups of this invocation's row of 32, by halving.
double join_groups(double sum) {
  barrier();
  group_sums[THREAD] = sum;
  barrier();
  for (int width = kGroups / 2; width > 0; width /= 2) {
    if (THREAD % kLanes < width) group_sums[THREAD] += group_sums[THREAD + width];
    barrier();
  }
  return group_sums[THREAD / kLanes * kLanes];
}
