/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at many tensors of PyTorch at once, so that an optimizer can see in every step whether its gradients are still
 * what they were: by the functions that DLPack 1.2 lets a library publish for C. What may be done with a tensor is not
 * decided here but in torch_memory.py, whenever something has changed.
 */
#ifndef GRADSCALER_PYTHON_TORCH_LOOK_H
#define GRADSCALER_PYTHON_TORCH_LOOK_H
#include <Python.h>

/*
 * `api` is the capsule torch.Tensor.__dlpack_c_exchange_api__, `tensors` a list of tensors and None. Returns (layout,
 * addresses): bytes that are equal for two lists if and only if dtypes, devices, shapes, strides and the places of None
 * are, and the address of each tensor, NULL for None. None if an entry is not exactly of `type` or `parameter`, or is
 * none that DLPack can describe, or if the capsule is of an unknown version.
 */
PyObject *gsc_torch_look(PyObject *api, PyObject *tensors, PyObject *type, PyObject *parameter);

/*
 * Looks at parameters and their .grad in one pass, while what it touches is in the caches. `lists` is a list of lists:
 * all parameters in their order. Returns the addresses of the gradients, as above, if the parameters are the objects in
 * the list `tensors` with the layout `params` and the addresses `addresses`, and the gradients have the layout `grads`;
 * else None.
 */
PyObject *gsc_torch_same(PyObject *api, PyObject *lists, PyObject *tensors, PyObject *params, PyObject *addresses,
                         PyObject *grads, PyObject *type, PyObject *parameter);

#endif /* GRADSCALER_PYTHON_TORCH_LOOK_H */
