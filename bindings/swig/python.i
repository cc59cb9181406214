/* SPDX-License-Identifier: Apache-2.0
 *
 * Typemaps of the Python module: statuses as exceptions, addresses as integers, host buffers by the buffer protocol.
 * They stay within the limited API, so that one build can serve all later versions of Python. Calls that work on
 * tensors release the GIL; the status is turned into an exception after it is taken again, on the same thread.
 */
%{
#include <stdio.h>

#include "intake.h"
#include "torch_threads.h"

/* Exception classes by status, set once by set_error_classes. */
static PyObject *gsc_error_classes = NULL;

/* Sets an attribute; None for what is not known. Takes the value over. */
static void gsc_set_attribute(PyObject *object, const char *name, int known, PyObject *value) {
  if (value && object) PyObject_SetAttrString(object, name, known ? value : Py_None);
  Py_XDECREF(value);
}

/* What a callback raised in the call in progress on this thread, to be the cause of the call's error. */
static GSC_SWIG_THREAD_LOCAL PyObject *gsc_cause = NULL;

/* gsc_all_reduce_fn. `user` is a callable of (address, count, stream), which the scaler's owner holds. */
static int32_t gsc_python_sum(void *user, double *values, int64_t count, gsc_stream stream) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *done = PyObject_CallFunction((PyObject *)user, "NLN", PyLong_FromVoidPtr(values), (long long)count,
                                         PyLong_FromVoidPtr(stream));
  const int32_t failed = !done;
  if (failed) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    Py_XDECREF(gsc_cause);
    gsc_cause = value;
  }
  Py_XDECREF(done);
  PyGILState_Release(state);
  return failed;
}

/* What the library has logged as a warning in the call in progress on this thread, "" for nothing; and the callable that
 * is told after the call. */
static GSC_SWIG_THREAD_LOCAL char gsc_warning[512] = "";
static PyObject *gsc_warner = NULL;

/* gsc_log_fn. The GIL may be released here. */
static void gsc_python_log(void *user, int32_t level, const char *message) {
  (void)user;
  if (level == GSC_LOG_WARNING) snprintf(gsc_warning, sizeof gsc_warning, "%s", message);
}

/* 0 with an exception set if there is a warning and it is one. */
static int gsc_tell_warning(void) {
  char message[sizeof gsc_warning];
  memcpy(message, gsc_warning, sizeof message);
  gsc_warning[0] = 0;
  PyObject *done = gsc_warner ? PyObject_CallFunction(gsc_warner, "s", message) : NULL;
  Py_XDECREF(done);
  return done || !gsc_warner;
}

static void gsc_raise(gsc_status status, const char *message, const gsc_error *details) {
  /* KeyboardInterrupt and the like are not errors of the library: raise them unchanged. */
  if (gsc_cause && !PyErr_GivenExceptionMatches(gsc_cause, PyExc_Exception)) {
    PyErr_SetObject((PyObject *)Py_TYPE(gsc_cause), gsc_cause);
    Py_DECREF(gsc_cause);
    gsc_cause = NULL;
    return;
  }
  PyObject *type = gsc_error_classes ? PyTuple_GetItem(gsc_error_classes, status) : NULL;
  if (!type) {
    PyErr_Clear();
    type = PyExc_RuntimeError;
  }
  /* Python users do not know the C function: leave it out. */
  const char *rest = strncmp(message, "gsc_", 4) == 0 ? strstr(message, ": ") : NULL;
  PyObject *error = PyObject_CallFunction(type, "s", rest ? rest + 2 : message);
  if (!error) return;
  gsc_set_attribute(error, "function", details->function[0] != 0, PyUnicode_FromString(details->function));
  gsc_set_attribute(error, "argument", details->argument[0] != 0, PyUnicode_FromString(details->argument));
  gsc_set_attribute(error, "field", details->field[0] != 0, PyUnicode_FromString(details->field));
  gsc_set_attribute(error, "index", details->index >= 0, PyLong_FromLongLong(details->index));
  gsc_set_attribute(error, "tensor", details->tensor >= 0, PyLong_FromLongLong(details->tensor));
  if (gsc_cause) PyException_SetCause(error, gsc_cause);
  gsc_cause = NULL;
  if (!PyErr_Occurred()) PyErr_SetObject(type, error);
  Py_DECREF(error);
}
%}

/* Everything holds the GIL but what does the work, or waits for it. */
%nothread;
%thread gsc_context::gsc_context;
%thread gsc_context::unscale_check_;
%thread gsc_context::scale_;
%thread gsc_context::axpby_;
%thread gsc_context::cast_;
%thread gsc_context::convert_state_;
%thread gsc_context::norm_;
%thread gsc_tensor_list::diagnose_;
%thread gsc_scaler::scale_;
%thread gsc_scaler::unscale;
%thread gsc_scaler::check;
%thread gsc_scaler::check_range;
%thread gsc_scaler::clip_grad_norm;
%thread gsc_scaler::clip_grad_value;
%thread gsc_scaler::step;
%thread gsc_scaler::step_slice_;
%thread gsc_scaler::should_step_;
%thread gsc_scaler::step_and_update;
%thread gsc_scaler::get_scale_;
%thread gsc_scaler::get_report_;
%thread gsc_scaler::history_;
%thread gsc_scaler::get_state_;
%thread gsc_optimizer::gsc_optimizer;
%thread gsc_optimizer::set_evaluating;
%thread gsc_optimizer::step;
%thread gsc_optimizer::step_scaled_;
%thread gsc_optimizer::zero_grads;
%thread gsc_optimizer::steps_applied_;
%thread gsc_optimizer::unchanged_;
%thread gsc_optimizer::steps_skipped_;
%thread gsc_optimizer::tensor_steps_;
%thread gsc_optimizer::save_;
%thread gsc_optimizer::load_;

%inline %{
/* What is static here, and in the library's callbacks, is of one interpreter. */
static int is_in_main_interpreter(void) { return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0; }
static PyObject *set_error_classes(PyObject *classes) {
  if (!PyTuple_Check(classes)) {
    PyErr_SetString(PyExc_TypeError, "classes must be a tuple");
    return NULL;
  }
  Py_INCREF(classes);
  Py_XDECREF(gsc_error_classes);
  gsc_error_classes = classes;
  Py_INCREF(Py_None);
  return Py_None;
}
static PyObject *set_warner(PyObject *warner) {
  Py_INCREF(warner);
  Py_XDECREF(gsc_warner);
  gsc_warner = warner;
  Py_INCREF(Py_None);
  return Py_None;
}
static PyObject *buffer_view(PyObject *object) { return gsc_buffer_view(object); }
static PyObject *buffer_holders(PyObject *tensors, PyObject *array, PyObject *owners) {
  return gsc_buffer_holders(tensors, array, owners);
}
static PyObject *dlpack_view(PyObject *capsule) { return gsc_dlpack_view(capsule); }
static PyObject *tensors_view(PyObject *api, PyObject *tensors, PyObject *types, PyObject *is_neg) {
  return gsc_tensors_view(api, tensors, types, is_neg);
}
static PyObject *step_view(PyObject *api, PyObject *params, PyObject *grads, PyObject *known, PyObject *tell) {
  return gsc_step_view(api, params, grads, known, tell);
}
%}

%define GSC_RAISE_PENDING
  {
    const char *message = NULL;
    gsc_error details;
    const gsc_status status = gsc_take_pending(&message, &details);
    if (status != GSC_OK) {
      gsc_warning[0] = 0; /* the error says more */
      gsc_raise(status, message, &details);
      SWIG_fail;
    }
  }
%enddef
%define GSC_TELL_WARNING
  if (gsc_warning[0] && !gsc_tell_warning()) {
    Py_CLEAR($result);
    SWIG_fail;
  }
%enddef

%typemap(out) gsc_status {
  if ($1 != GSC_OK) gsc_pending = $1;
  GSC_RAISE_PENDING
  $result = SWIG_Py_Void();
  GSC_TELL_WARNING
}
%typemap(out) int32_t { GSC_RAISE_PENDING $result = PyLong_FromLong($1); }
%typemap(out) uint32_t { GSC_RAISE_PENDING $result = PyLong_FromUnsignedLong($1); }
%typemap(out) int64_t { GSC_RAISE_PENDING $result = PyLong_FromLongLong($1); }
%typemap(out) float, double {
  GSC_RAISE_PENDING
  $result = PyFloat_FromDouble($1);
  GSC_TELL_WARNING
}
%typemap(out) const char * { GSC_RAISE_PENDING $result = PyUnicode_FromString($1 ? $1 : ""); }
%typemap(out) SWIGTYPE * {
  GSC_RAISE_PENDING
  $result = SWIG_NewPointerObj(SWIG_as_voidptr($1), $descriptor, $owner | %newpointer_flags);
  GSC_TELL_WARNING
}
%typemap(out) gsc_tensor_diagnosis, gsc_history_entry, gsc_recommendation {
  GSC_RAISE_PENDING
  $&1_ltype copy = ($&1_ltype)malloc(sizeof $1);
  if (!copy) {
    PyErr_NoMemory();
    SWIG_fail;
  }
  *copy = $1;
  $result = SWIG_NewPointerObj(SWIG_as_voidptr(copy), $&1_descriptor, SWIG_POINTER_OWN | %newpointer_flags);
}

%typemap(in) void *ADDRESS {
  $1 = NULL;
  if ($input != Py_None) {
    $1 = ($1_ltype)PyLong_AsVoidPtr($input);
    if (PyErr_Occurred()) SWIG_fail;
  }
}
%typemap(out) void *ADDRESS { $result = PyLong_FromVoidPtr((void *)$1); }

/* Held for the whole call. */
%typemap(in) (void *buffer, int64_t size) (Py_buffer view, int held = 0) {
  if (PyObject_GetBuffer($input, &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) SWIG_fail;
  held = 1;
  $1 = view.buf;
  $2 = (int64_t)view.len;
}
%typemap(in) (const void *buffer, int64_t size) (Py_buffer view, int held = 0) {
  if (PyObject_GetBuffer($input, &view, PyBUF_C_CONTIGUOUS) < 0) SWIG_fail;
  held = 1;
  $1 = view.buf;
  $2 = (int64_t)view.len;
}
%typemap(freearg) (void *buffer, int64_t size), (const void *buffer, int64_t size) {
  if (held$argnum) PyBuffer_Release(&view$argnum);
}

/* See objects.i for the trailing underscore. */
%rename("%(regex:/^(.*)_$/\\1/)s", regexmatch$name="_$", %$isfunction, %$ismember) "";

%extend gsc_context_options {
  /* 1 if it is possible; see torch_threads.h. */
  int32_t use_torch_threads_() { return gsc_use_torch_threads($self); }
  /* See set_warner. */
  gsc_status warn_() {
    $self->log = gsc_python_log;
    return GSC_OK;
  }
}

%{
/* Layouts of gsc_tensors_view, and what is left of them. */
typedef struct Layout {
  const int64_t *rest;
  int64_t count;
} Layout;

static Layout gsc_layout(const void *bytes, int64_t size) {
  const Layout layout = {(const int64_t *)bytes, size / (int64_t)sizeof(int64_t)};
  return layout;
}

/* Reads the next tensor, which must have the device, extents and strides of the next of `like`. */
static int gsc_next_alike(Layout *layout, Layout *like, LayoutEntry *entry) {
  LayoutEntry model;
  return gsc_layout_next(&layout->rest, &layout->count, entry) && gsc_layout_next(&like->rest, &like->count, &model) &&
         entry->rank == model.rank &&
         memcmp(entry->words, model.words, (2 + 2 * (size_t)model.rank) * sizeof *model.words) == 0;
}

/* Reads the next tensor, which must have a scale of a dtype for each 32 of so many elements. */
static int gsc_next_scales(Layout *layout, int64_t elements, int32_t scale_dtype) {
  LayoutEntry entry;
  return gsc_layout_next(&layout->rest, &layout->count, &entry) &&
         entry.bits == (scale_dtype == GSC_FP8_E8M0 ? 8 : 16) && entry.elements >= (elements + 31) / 32;
}
%}

%apply (const void *buffer, int64_t size) {
  (const void *layout, int64_t layout_size), (const void *addresses, int64_t size), (const void *like, int64_t like_size),
  (const void *scale_layout, int64_t scale_layout_size), (const void *scales, int64_t scales_size),
  (const void *present, int64_t count)
};
%newobject tensors_array;
%inline %{
/* The tensors of a layout, of dtype `dtype`, 0 for their own. Empty `scales` are none. None unless all are dense, have
 * the devices, extents and strides of `like`, and scales enough. */
static gsc_tensor_array *tensors_array(const void *layout, int64_t layout_size, const void *addresses, int64_t size,
                                       const void *like, int64_t like_size, int32_t dtype, const void *scale_layout,
                                       int64_t scale_layout_size, const void *scales, int64_t scales_size) {
  const int64_t count = size / (int64_t)sizeof(void *);
  Layout own = gsc_layout(layout, layout_size), model = gsc_layout(like, like_size);
  Layout scaled = gsc_layout(scale_layout, scale_layout_size);
  gsc_tensor_array *array = gsc_tensor_array_new(count);
  if (!array) return NULL;
  int fits = scales_size == 0 || scales_size == size;
  for (int64_t i = 0; fits && i < count; ++i) {
    LayoutEntry entry;
    void *data = ((void *const *)addresses)[i];
    fits = gsc_next_alike(&own, &model, &entry) && (dtype != 0 || entry.dtype > 0) && (data || entry.elements == 0) &&
           (scales_size == 0 || gsc_next_scales(&scaled, entry.elements, gsc_scale_dtype_of(dtype)));
    if (!fits) break;
    gsc_tensor_array_add(array, data, entry.elements, dtype != 0 ? dtype : entry.dtype, NULL);
    if (scales_size != 0) gsc_tensor_array_set_scales(array, ((void *const *)scales)[i]);
  }
  if (fits) return array;
  gsc_tensor_array_free(array);
  return NULL;
}
%}

%extend gsc_tensor_list {
  /* `buffer` holds the addresses, and `present` a byte for each tensor, as tensors_view gives them. */
  gsc_status set_addresses_(const void *buffer, int64_t size, gsc_stream stream) {
    return gsc_tensor_list_set_pointers($self, (void *const *)buffer, size / (int64_t)sizeof(void *), stream);
  }
  gsc_status set_present_at_(const void *buffer, int64_t size, const void *present, int64_t count, gsc_stream stream) {
    if (size < count * (int64_t)sizeof(void *)) {
      gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "there are fewer addresses than tensors");
      return gsc_pending;
    }
    return gsc_tensor_list_set_present($self, (const uint8_t *)present, (void *const *)buffer, count, stream);
  }
}

%extend gsc_scaler {
  /* `reduce` is called with (address, count, stream), and not held here; None removes it. */
  gsc_status set_reducer_(PyObject *reduce) {
    const gsc_reducer reducer = {(uint32_t)sizeof reducer, 0, gsc_python_sum, reduce};
    return gsc_scaler_set_reducer($self, reduce == Py_None ? NULL : &reducer);
  }
}
