// SPDX-License-Identifier: Apache-2.0
//
// The part of XLA's FFI ABI that jax_ffi.cpp uses, so that every wheel has the handlers and building needs no jaxlib.
// The layouts are facts of xla/ffi/api/c_api.h (openxla.org), unchanged from jaxlib 0.5 (API 0.1) to 0.10 (API 0.3);
// tests/python/xla_ffi_layout.cpp compares them with the installed jaxlib. Structures begin with their size, so that
// fields that a runtime lacks can be detected. Names are ours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xla_ffi {

constexpr int32_t kMajorVersion = 0;
/// The oldest and newest minor version that these layouts were compared with.
constexpr int32_t kOldestMinorVersion = 1;
constexpr int32_t kNewestMinorVersion = 3;

enum ErrorCode : int32_t { kInvalidArgument = 3, kResourceExhausted = 8, kInternal = 13 };
enum DataType : int32_t { kS32 = 4, kF16 = 10, kF32 = 11, kF64 = 12, kBF16 = 16 };
enum AttributeType : int32_t { kScalarAttribute = 3 };
enum ExtensionType : int32_t { kMetadataExtension = 1 };

struct Error;
struct ExecutionContext;

/// The head of every structure except the small ones.
struct Extension {
  std::size_t struct_size;
  ExtensionType type;
  Extension *next;
};

struct ApiVersion {
  std::size_t struct_size;
  Extension *extension_start;
  int32_t major_version;
  int32_t minor_version;
};

struct ErrorCreateArgs {
  std::size_t struct_size;
  Extension *extension_start;
  const char *message;
  ErrorCode code;
};

struct StreamGetArgs {
  std::size_t struct_size;
  Extension *extension_start;
  ExecutionContext *context;
  void *stream;
};

struct DeviceOrdinalGetArgs {
  std::size_t struct_size;
  Extension *extension_start;
  ExecutionContext *context;
  int32_t device_ordinal;
};

struct Api {
  using Unused = void (*)();

  std::size_t struct_size;
  Extension *extension_start;
  ApiVersion version;
  const void *internal;
  Error *(*error_create)(ErrorCreateArgs *args);
  Unused before_stream[3];
  Error *(*stream_get)(StreamGetArgs *args);
  Unused before_device_ordinal[12];
  /// Since jaxlib 0.6; see struct_size.
  Error *(*device_ordinal_get)(DeviceOrdinalGetArgs *args);
};

struct Buffer {
  std::size_t struct_size;
  Extension *extension_start;
  DataType dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
};

/// Operands, and results.
struct Buffers {
  std::size_t struct_size;
  Extension *extension_start;
  int64_t size;
  int32_t *types;
  Buffer **buffers;
};

struct ByteSpan {
  const char *data;
  std::size_t size;
};

struct Scalar {
  DataType dtype;
  void *value;
};

struct Attributes {
  std::size_t struct_size;
  Extension *extension_start;
  int64_t size;
  AttributeType *types;
  ByteSpan **names;
  void **values;
};

struct CallFrame {
  std::size_t struct_size;
  Extension *extension_start;
  const Api *api;
  ExecutionContext *context;
  int32_t stage;
  Buffers args;
  Buffers rets;
  Attributes attributes;
  void *future;
};

struct Metadata {
  std::size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};

/// The extension of a call that queries a handler's metadata instead of running it. Older runtimes do so without an
/// Api.
struct MetadataExtension {
  Extension base;
  Metadata *metadata;
};

}  // namespace xla_ffi
