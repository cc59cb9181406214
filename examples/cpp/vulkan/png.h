// SPDX-License-Identifier: Apache-2.0
//
// Writes PNG files without compression: a PNG may hold its bytes as they are, in stored blocks of deflate.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using Bytes = std::vector<uint8_t>;

inline void append_big_endian(Bytes &out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

inline void append_chunk(Bytes &out, const char *type, const Bytes &content) {
  append_big_endian(out, static_cast<uint32_t>(content.size()));
  const size_t begin = out.size();
  out.insert(out.end(), type, type + 4);
  out.insert(out.end(), content.begin(), content.end());
  uint32_t crc = ~0U;
  for (size_t i = begin; i < out.size(); ++i) {
    crc ^= out[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0xedb88320U : 0);
  }
  append_big_endian(out, ~crc);
}

/// `rgb` has three bytes for each pixel, row after row.
inline void write_png(const std::string &path, uint32_t width, uint32_t height, const Bytes &rgb) {
  Bytes rows;  // each begins with its filter: none
  for (size_t y = 0; y < height; ++y) {
    rows.push_back(0);
    rows.insert(rows.end(), &rgb[y * width * 3], &rgb[y * width * 3] + size_t{width} * 3);
  }
  Bytes data = {0x78, 1};
  uint32_t a = 1, b = 0;  // Adler-32
  for (const uint8_t byte : rows) b = (b + (a = (a + byte) % 65521)) % 65521;
  for (size_t at = 0; at < rows.size(); at += 65535) {
    const size_t size = std::min<size_t>(65535, rows.size() - at);
    data.push_back(at + size == rows.size() ? 1 : 0);
    for (const size_t half : {size, ~size}) {
      data.push_back(static_cast<uint8_t>(half));
      data.push_back(static_cast<uint8_t>(half >> 8));
    }
    data.insert(data.end(), &rows[at], &rows[at] + size);
  }
  append_big_endian(data, b << 16 | a);

  Bytes header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  for (const uint8_t byte : {8, 2, 0, 0, 0}) header.push_back(byte);  // 8 bits, RGB
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", data);
  append_chunk(file, "IEND", {});
  std::FILE *out = std::fopen(path.c_str(), "wb");
  const bool written = out != nullptr && std::fwrite(file.data(), 1, file.size(), out) == file.size();
  if ((out != nullptr && std::fclose(out) != 0) || !written) throw std::runtime_error("cannot write " + path);
}
