// SPDX-License-Identifier: Apache-2.0
// Memory at an address, and what GLSL calls otherwise than C++. Integers of 8 and 16 bits are widened to 32.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require

#define REFERENCE(suffix, element, bytes) \
  layout(buffer_reference, std430, buffer_reference_align = bytes) buffer Ref_##suffix { element v; };
#define MEMORY(suffix, element, bytes, type)                                  \
  REFERENCE(suffix, element, bytes)                                           \
  type load_##suffix(uint64_t p) { return type(Ref_##suffix(p).v); }          \
  void store_##suffix(uint64_t p, type x) { Ref_##suffix(p).v = element(x); }

MEMORY(u8, uint8_t, 1, uint)
MEMORY(i8, int8_t, 1, int)
MEMORY(u16, uint16_t, 2, uint)
MEMORY(i16, int16_t, 2, int)
MEMORY(u32, uint, 4, uint)
MEMORY(i32, int, 4, int)
MEMORY(f32, float, 4, float)
MEMORY(u64, uint64_t, 8, uint64_t)
MEMORY(i64, int64_t, 8, int64_t)
MEMORY(f64, double, 8, double)

bool load_bool(uint64_t p) { return load_u8(p) != 0u; }
void store_bool(uint64_t p, bool x) { store_u8(p, x ? 1u : 0u); }

uint64_t double_bits(double x) {
  const uvec2 halves = unpackDouble2x32(x);
  return uint64_t(halves.x) | uint64_t(halves.y) << 32;
}
double bits_double(uint64_t x) { return packDouble2x32(uvec2(uint(x), uint(x >> 32))); }
