// SPDX-License-Identifier: Apache-2.0
//
// Compares bindings/python/xla_ffi.h with the header of the installed jaxlib. Compiling it is the test: there is
// nothing to run. What the handlers only pass on, such as pointers to functions, is compared by its place.
#include <cstddef>

#include "xla/ffi/api/c_api.h"
#include "xla_ffi.h"

// Each structure of ours, XLA's, and the fields of both that have another name there.
#define SAME(field, theirs) static_assert(offsetof(Ours, field) == offsetof(Theirs, theirs))
#define SAME_SIZE static_assert(sizeof(Ours) == sizeof(Theirs))
#define STRUCTURE(name, theirs, ...) \
  namespace name##_##theirs {        \
    using Ours = xla_ffi::name;      \
    using Theirs = ::theirs;         \
    __VA_ARGS__;                     \
  }

static_assert(XLA_FFI_API_MAJOR == xla_ffi::kMajorVersion, "another major version of the interface");

STRUCTURE(Extension, XLA_FFI_Extension_Base, SAME_SIZE; SAME(type, type))
STRUCTURE(ApiVersion, XLA_FFI_Api_Version, SAME_SIZE; SAME(minor_version, minor_version))
STRUCTURE(ErrorCreateArgs, XLA_FFI_Error_Create_Args, SAME_SIZE; SAME(message, message); SAME(code, errc))
STRUCTURE(StreamGetArgs, XLA_FFI_Stream_Get_Args, SAME_SIZE; SAME(context, ctx); SAME(stream, stream))
STRUCTURE(DeviceOrdinalGetArgs, XLA_FFI_DeviceOrdinal_Get_Args, SAME_SIZE; SAME(device_ordinal, device_ordinal))
STRUCTURE(Api, XLA_FFI_Api, SAME(version, api_version); SAME(error_create, XLA_FFI_Error_Create);
          SAME(stream_get, XLA_FFI_Stream_Get); SAME(device_ordinal_get, XLA_FFI_DeviceOrdinal_Get))
STRUCTURE(Buffer, XLA_FFI_Buffer, SAME_SIZE; SAME(dtype, dtype); SAME(data, data); SAME(rank, rank); SAME(dims, dims))
STRUCTURE(Buffers, XLA_FFI_Args, SAME_SIZE; SAME(size, size); SAME(types, types); SAME(buffers, args))
STRUCTURE(Buffers, XLA_FFI_Rets, SAME_SIZE; SAME(buffers, rets))
STRUCTURE(ByteSpan, XLA_FFI_ByteSpan, SAME_SIZE; SAME(size, len))
STRUCTURE(Scalar, XLA_FFI_Scalar, SAME_SIZE; SAME(value, value))
STRUCTURE(Attributes, XLA_FFI_Attrs, SAME_SIZE; SAME(size, size); SAME(types, types); SAME(names, names);
          SAME(values, attrs))
STRUCTURE(CallFrame, XLA_FFI_CallFrame, SAME(extension_start, extension_start); SAME(api, api); SAME(context, ctx);
          SAME(args, args); SAME(rets, rets); SAME(attributes, attrs))
STRUCTURE(Metadata, XLA_FFI_Metadata, SAME(api_version, api_version); SAME(traits, traits))
STRUCTURE(MetadataExtension, XLA_FFI_Metadata_Extension, SAME(metadata, metadata))

static_assert(xla_ffi::kInvalidArgument == int{XLA_FFI_Error_Code_INVALID_ARGUMENT} &&
              xla_ffi::kResourceExhausted == int{XLA_FFI_Error_Code_RESOURCE_EXHAUSTED} &&
              xla_ffi::kInternal == int{XLA_FFI_Error_Code_INTERNAL});
static_assert(xla_ffi::kS32 == int{XLA_FFI_DataType_S32} && xla_ffi::kF16 == int{XLA_FFI_DataType_F16} &&
              xla_ffi::kF32 == int{XLA_FFI_DataType_F32} && xla_ffi::kF64 == int{XLA_FFI_DataType_F64} &&
              xla_ffi::kBF16 == int{XLA_FFI_DataType_BF16});
static_assert(xla_ffi::kScalarAttribute == int{XLA_FFI_AttrType_SCALAR} &&
              xla_ffi::kMetadataExtension == int{XLA_FFI_Extension_Metadata});
