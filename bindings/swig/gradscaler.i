/* SPDX-License-Identifier: Apache-2.0
 *
 * The SWIG interface of gradscaler, common to all languages: the C header's constants and structs, and its opaque
 * objects as classes. A language adds one file of typemaps, <language>.i, included below, and a facade.
 *
 * What a language file must provide, for types that it spells differently:
 *   gsc_status, out             nothing if GSC_OK, else the language's exception with the status and the message
 *   every other type, out       first the status that gsc_take_pending returns, then the value
 *   void *ADDRESS, in and out   an address as an integer
 *   (void *buffer, int64_t size) and (const void *buffer, int64_t size), in   host memory that the language owns
 * Callbacks do not pass safely through SWIG; Java and C# add the log and the reducer by hand.
 */
%module gradscaler
%{
#include "support.h"
%}
%include "stdint.i"

/* The header without its export attributes. */
#define GSC_STATIC
typedef int32_t gsc_status;
typedef void *gsc_stream;

#if defined(SWIGPYTHON)
%include "python.i"
#elif defined(SWIGJAVA)
%include "java.i"
#elif defined(SWIGCSHARP)
%include "csharp.i"
#endif

%apply void *ADDRESS { void *data, gsc_stream, gsc_stream stream, void *out_norm, void *out_tensor_norms,
                       void *found_inf, void *inv_scale, void *scale, void *growth_tracker, void *factor,
                       void *device_lr, void *device_factor, void *device_norms, void *out_report };
%apply void *ADDRESS { const float *, const double *, const int32_t * };

/* Names. */
%rename("%(strip:[GSC_])s", %$isenumitem) "";
%rename("%(strip:[GSC_])s", %$isconstant) "";
%rename(DEVICE_VULKAN) GSCX_DEVICE_VULKAN;
%rename("$ignore", regexmatch$name="^gscx?_", %$isfunction, %$isglobal) "";
%rename(version) gsc_library_get_version;
%rename(abi_version) gsc_library_get_abi_version;
%rename(status_string) gsc_status_get_name;
%rename(build_info) gsc_library_get_build_info;
#if defined(SWIGJAVA) || defined(SWIGCSHARP)
/* Their public classes are written by hand over these, which are not visible outside, and have their own. */
%define GSC_CLASS(TYPE, NAME)
%rename(Native##NAME) TYPE;
%enddef
%ignore gsc_status_get_name;
%ignore gsc_library_get_abi_version;
%ignore GSC_ABI_VERSION;
%ignore GSC_SCALER_STATE_FORMAT;
#else
%define GSC_CLASS(TYPE, NAME)
%rename(NAME) TYPE;
%enddef
#endif
GSC_CLASS(gsc_context_options, ContextOptions)
GSC_CLASS(gsc_device_info, DeviceInfo)
GSC_CLASS(gsc_context, Context)
GSC_CLASS(gsc_tensor, Tensor)
GSC_CLASS(gsc_tensor_array, TensorArray)
GSC_CLASS(gsc_numbers, Numbers)
GSC_CLASS(gsc_tensor_list, TensorList)
GSC_CLASS(gsc_tensor_diagnosis, TensorDiagnosis)
GSC_CLASS(gsc_diagnoses, Diagnoses)
GSC_CLASS(gsc_recommendation, Recommendation)
GSC_CLASS(gsc_scaler_options, ScalerOptions)
GSC_CLASS(gsc_scaler, Scaler)
GSC_CLASS(gsc_report, Report)
GSC_CLASS(gsc_history, History)
GSC_CLASS(gsc_history_entry, HistoryEntry)
GSC_CLASS(gsc_device_state, DeviceState)
GSC_CLASS(gsc_scaler_state, ScalerState)
GSC_CLASS(gsc_optimizer_options, OptimizerOptions)
GSC_CLASS(gsc_optimizer, Optimizer)

/* Not for bindings: callbacks, memory layout. */
%ignore gsc_error;
%ignore gsc_reducer;
%ignore gsc_api;
%ignore gsc_tensor::scale_dtype;
%ignore gsc_tensor::scale;
%ignore gsc_tensor::scale_block_rows;
%ignore gsc_tensor::scale_block_columns;
%ignore gsc_tensor::columns;
%ignore gsc_context_options::parallel_for;
%ignore gsc_context_options::parallel_for_user;
%ignore gsc_context_options::allocate;
%ignore gsc_context_options::release;
%ignore gsc_context_options::allocator_user;
%ignore gsc_context_options::log;
%ignore gsc_context_options::log_user;
%ignore gsc_context_options::device_pool;
#if defined(SWIGCSHARP)
%apply void *ADDRESS { const gscx_vulkan_device *vulkan };
#endif
%ignore gscx_vulkan_buffer;
%ignore gscx_vulkan_device;
%ignore GSC_API;
%ignore GSC_TENSOR_INIT;
%ignore GSC_CONTEXT_OPTIONS_INIT;
%ignore GSC_SCALER_OPTIONS_INIT;
%ignore GRADSCALER_GRADSCALER_H;
%ignore GRADSCALER_VULKAN_H;
%rename("$ignore", regexmatch$name="^struct_size$", %$isvariable) "";
%rename("$ignore", regexmatch$name="^reserved$", %$isvariable) "";

/* Structs with a struct_size, or with defaults. */
%define GSC_SIZED_STRUCT(TYPE)
%extend TYPE {
  TYPE() {
    TYPE *self = (TYPE *)gsc_swig_allocate(sizeof *self);
    if (self) self->struct_size = (uint32_t)sizeof *self;
    return self;
  }
  ~TYPE() { free($self); }
}
%enddef
GSC_SIZED_STRUCT(gsc_device_info)
GSC_SIZED_STRUCT(gsc_report)
GSC_SIZED_STRUCT(gsc_device_state)
%immutable gsc_device_info::name;

%extend gsc_context_options {
  gsc_context_options() {
    gsc_context_options *self = (gsc_context_options *)gsc_swig_allocate(sizeof *self);
    if (self) gsc_record(gsc_context_options_init(self, (uint32_t)sizeof *self));
    return self;
  }
  ~gsc_context_options() { free($self); }
}
%extend gsc_scaler_options {
  gsc_scaler_options() {
    gsc_scaler_options *self = (gsc_scaler_options *)gsc_swig_allocate(sizeof *self);
    if (self) gsc_record(gsc_scaler_options_init(self, (uint32_t)sizeof *self, GSC_PRESET_TORCH));
    return self;
  }
  ~gsc_scaler_options() { free($self); }
  gsc_status preset_(int32_t preset) { return gsc_scaler_options_init($self, (uint32_t)sizeof *$self, preset); }
}
%extend gsc_scaler_state {
  gsc_scaler_state() {
    gsc_scaler_state *self = (gsc_scaler_state *)gsc_swig_allocate(sizeof *self);
    if (self) {
      self->struct_size = (uint32_t)sizeof *self;
      self->format = GSC_SCALER_STATE_FORMAT;
    }
    return self;
  }
  ~gsc_scaler_state() { free($self); }
}
%extend gsc_optimizer_options {
  gsc_optimizer_options(int32_t kind) {
    gsc_optimizer_options *self = (gsc_optimizer_options *)gsc_swig_allocate(sizeof *self);
    if (self && !gsc_record(gsc_optimizer_options_init(self, (uint32_t)sizeof *self, kind))) {
      free(self);
      self = NULL;
    }
    return self;
  }
  ~gsc_optimizer_options() { free($self); }
}

%include "gradscaler/gradscaler.h"
%include "gradscaler/vulkan.h"

%inline %{
/* Number of devices of a kind. */
static int32_t device_count(int32_t device_type) {
  int32_t count = 0;
  gsc_record(gsc_device_get_count(device_type, &count));
  return count;
}
static gsc_status device_info(int32_t device_type, int32_t device_index, gsc_device_info *out_info) {
  return gsc_device_get_info(device_type, device_index, out_info);
}
/* The dtype of the scales of codes; 0 if they have none. */
static int32_t scale_dtype(int32_t dtype) { return gsc_scale_dtype_of(dtype); }
%}

%immutable;
typedef struct gsc_recommendation {
  float scale;
  double flushed;
} gsc_recommendation;
%mutable;

/* Opaque objects. Destroyed by their owner in any order; a child keeps its parents. */
%newobject gsc_scaler::history_;
%newobject gsc_optimizer::tensor_steps_;
%newobject gsc_tensor_list::diagnose_;
%nodefaultctor;
%nodefaultdtor;
typedef struct gsc_tensor_array {} gsc_tensor_array;
typedef struct gsc_numbers {} gsc_numbers;
typedef struct gsc_diagnoses {} gsc_diagnoses;
typedef struct gsc_history {} gsc_history;
#if defined(SWIGJAVA)
%include "java_calls.i"
#elif defined(SWIGCSHARP)
%include "csharp_calls.i"
#endif
typedef struct gsc_context {} gsc_context;
typedef struct gsc_tensor_list {} gsc_tensor_list;
typedef struct gsc_scaler {} gsc_scaler;
typedef struct gsc_optimizer {} gsc_optimizer;
%clearnodefaultctor;
%clearnodefaultdtor;

%include "objects.i"
