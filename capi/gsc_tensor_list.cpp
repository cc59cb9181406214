// SPDX-License-Identifier: Apache-2.0
// Entry points of tensor lists.
#include "capi/guard.h"
#include "core/base/error.h"
#include "core/objects/tensor_list.h"

using namespace gsc;
using namespace gsc::capi;

gsc_status gsc_tensor_list_create(gsc_context *context, const gsc_tensor *tensors, int64_t count,
                                  const char *const *names, gsc_tensor_list **out_list) {
  return guard(__func__, [&] {
    require(out_list, "out_list");
    if (count > 0) require(tensors, "tensors");
    *out_list = to_handle<gsc_tensor_list>(
        TensorList::create(shared<Context>(context, "context"), tensors, count, names).detach());
  });
}

void gsc_tensor_list_destroy(gsc_tensor_list *list) { destroy(list); }

gsc_status gsc_tensor_list_get_count(const gsc_tensor_list *list, int64_t *out_count) {
  return guard(__func__, [&] { *require(out_count, "out_count") = object<TensorList>(list, "list").plan().size(); });
}

gsc_status gsc_tensor_list_get_tensor(const gsc_tensor_list *list, int64_t index, gsc_tensor *out_tensor) {
  return guard(__func__, [&] {
    require(out_tensor, "out_tensor");
    *out_tensor = object<TensorList>(list, "list").at(index);
  });
}

gsc_status gsc_tensor_list_set_pointers(gsc_tensor_list *list, void *const *data, int64_t count, gsc_stream stream) {
  return guard(__func__, [&] { InCall<TensorList>(list, "list")->set_pointers(data, count, stream); });
}

gsc_status gsc_tensor_list_set_present(gsc_tensor_list *list, const uint8_t *present, void *const *data, int64_t count,
                                       gsc_stream stream) {
  return guard(__func__, [&] { InCall<TensorList>(list, "list")->set_present(present, data, count, stream); });
}

gsc_status gsc_tensor_list_set_device_factor(gsc_tensor_list *list, const float *device_factor) {
  return guard(__func__,
               [&] { InCall<TensorList>(list, "list")->set_device_factor(aligned(device_factor, "device_factor")); });
}

gsc_status gsc_tensor_list_set_device_norms(gsc_tensor_list *list, double *device_norms, int64_t count) {
  return guard(__func__, [&] {
    InCall<TensorList>(list, "list")->set_device_norms(aligned(device_norms, "device_norms"), count);
  });
}

gsc_status gsc_tensor_list_get_name(const gsc_tensor_list *list, int64_t index, const char **out_name) {
  return guard(__func__, [&] {
    require(out_name, "out_name");
    *out_name = object<TensorList>(list, "list").name(index);
  });
}

gsc_status gsc_tensor_list_diagnose_sync(const gsc_tensor_list *list, gsc_tensor_diagnosis *out_diagnosis,
                                         int64_t *out_histogram, int64_t count, gsc_stream stream) {
  return guard(__func__, [&] {
    const InReading<TensorList> l(list, "list");
    l->require_count(count);
    if (count > 0) require(out_diagnosis, "out_diagnosis");
    l->require_elements("list");
    l->require_no_slices("list");
    CallStream call(*l->context(), stream);
    l->order().use(call);
    call.backend.diagnose_sync({&l->plan(), out_diagnosis, out_histogram}, call.stream());
  });
}
