// SPDX-License-Identifier: Apache-2.0
//
// Compares bindings/python/xla_ffi.h with the header of the installed jaxlib. Compiling it is the test: there is
// nothing to run. What the handlers only pass on, such as pointers to functions, is compared by its place.
#include <cstddef>

#include "xla/ffi/api/c_api.h"
#include "xla_ffi.h"

#define SAME_PLACE(ours, field, theirs, their_field) \
  static_assert(offsetof(xla_ffi::ours, field) == offsetof(theirs, their_field), #ours "." #field)
#define SAME_SIZE(ours, theirs) static_assert(sizeof(xla_ffi::ours) == sizeof(theirs), #ours)

static_assert(XLA_FFI_API_MAJOR == xla_ffi::kMajorVersion, "another major version of the interface");

SAME_SIZE(Extension, XLA_FFI_Extension_Base);
SAME_PLACE(Extension, type, XLA_FFI_Extension_Base, type);
SAME_SIZE(ApiVersion, XLA_FFI_Api_Version);
SAME_PLACE(ApiVersion, minor_version, XLA_FFI_Api_Version, minor_version);
SAME_SIZE(ErrorCreateArgs, XLA_FFI_Error_Create_Args);
SAME_PLACE(ErrorCreateArgs, message, XLA_FFI_Error_Create_Args, message);
SAME_PLACE(ErrorCreateArgs, code, XLA_FFI_Error_Create_Args, errc);
SAME_SIZE(StreamGetArgs, XLA_FFI_Stream_Get_Args);
SAME_PLACE(StreamGetArgs, context, XLA_FFI_Stream_Get_Args, ctx);
SAME_PLACE(StreamGetArgs, stream, XLA_FFI_Stream_Get_Args, stream);
SAME_SIZE(DeviceOrdinalGetArgs, XLA_FFI_DeviceOrdinal_Get_Args);
SAME_PLACE(DeviceOrdinalGetArgs, device_ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);

SAME_PLACE(Api, version, XLA_FFI_Api, api_version);
SAME_PLACE(Api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME_PLACE(Api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME_PLACE(Api, device_ordinal_get, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);

SAME_SIZE(Buffer, XLA_FFI_Buffer);
SAME_PLACE(Buffer, dtype, XLA_FFI_Buffer, dtype);
SAME_PLACE(Buffer, data, XLA_FFI_Buffer, data);
SAME_PLACE(Buffer, rank, XLA_FFI_Buffer, rank);
SAME_PLACE(Buffer, dims, XLA_FFI_Buffer, dims);
SAME_SIZE(Buffers, XLA_FFI_Args);
SAME_PLACE(Buffers, size, XLA_FFI_Args, size);
SAME_PLACE(Buffers, types, XLA_FFI_Args, types);
SAME_PLACE(Buffers, buffers, XLA_FFI_Args, args);
SAME_SIZE(Buffers, XLA_FFI_Rets);
SAME_PLACE(Buffers, buffers, XLA_FFI_Rets, rets);
SAME_SIZE(ByteSpan, XLA_FFI_ByteSpan);
SAME_PLACE(ByteSpan, size, XLA_FFI_ByteSpan, len);
SAME_SIZE(Scalar, XLA_FFI_Scalar);
SAME_PLACE(Scalar, value, XLA_FFI_Scalar, value);
SAME_SIZE(Attributes, XLA_FFI_Attrs);
SAME_PLACE(Attributes, size, XLA_FFI_Attrs, size);
SAME_PLACE(Attributes, types, XLA_FFI_Attrs, types);
SAME_PLACE(Attributes, names, XLA_FFI_Attrs, names);
SAME_PLACE(Attributes, values, XLA_FFI_Attrs, attrs);

SAME_PLACE(CallFrame, extension_start, XLA_FFI_CallFrame, extension_start);
SAME_PLACE(CallFrame, api, XLA_FFI_CallFrame, api);
SAME_PLACE(CallFrame, context, XLA_FFI_CallFrame, ctx);
SAME_PLACE(CallFrame, args, XLA_FFI_CallFrame, args);
SAME_PLACE(CallFrame, rets, XLA_FFI_CallFrame, rets);
SAME_PLACE(CallFrame, attributes, XLA_FFI_CallFrame, attrs);

SAME_PLACE(Metadata, api_version, XLA_FFI_Metadata, api_version);
SAME_PLACE(Metadata, traits, XLA_FFI_Metadata, traits);
SAME_PLACE(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);

static_assert(xla_ffi::kInvalidArgument == int{XLA_FFI_Error_Code_INVALID_ARGUMENT} &&
              xla_ffi::kResourceExhausted == int{XLA_FFI_Error_Code_RESOURCE_EXHAUSTED} &&
              xla_ffi::kInternal == int{XLA_FFI_Error_Code_INTERNAL});
static_assert(xla_ffi::kS32 == int{XLA_FFI_DataType_S32} && xla_ffi::kF16 == int{XLA_FFI_DataType_F16} &&
              xla_ffi::kF32 == int{XLA_FFI_DataType_F32} && xla_ffi::kF64 == int{XLA_FFI_DataType_F64} &&
              xla_ffi::kBF16 == int{XLA_FFI_DataType_BF16});
static_assert(xla_ffi::kScalarAttribute == int{XLA_FFI_AttrType_SCALAR} &&
              xla_ffi::kMetadataExtension == int{XLA_FFI_Extension_Metadata});
