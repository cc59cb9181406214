// SPDX-License-Identifier: Apache-2.0
// Elements of an array as they are stored.

uint64_t address_of(const Span span, int i) { return span.data + uint64_t(i * span.bytes); }
/// An element of up to 4 bytes as it is stored.
uint load_word(const Span span, int i) {
  const uint64_t p = address_of(span, i);
  return span.bytes == 4 ? load_u32(p) : (span.bytes == 2 ? load_u16(p) : load_u8(p));
}
void store_word(const Span span, int i, uint x) {
  const uint64_t p = address_of(span, i);
  if (span.bytes == 4) {
    store_u32(p, x);
  } else if (span.bytes == 2) {
    store_u16(p, x);
  } else {
    store_u8(p, x);
  }
}
uint64_t load_stored(const Span span, int i) {
  return span.bytes == 8 ? load_u64(address_of(span, i)) : uint64_t(load_word(span, i));
}
void store_stored(const Span span, int i, uint64_t x) {
  if (span.bytes == 8) {
    store_u64(address_of(span, i), x);
  } else {
    store_word(span, i, uint(x));
  }
}
