/* SPDX-License-Identifier: Apache-2.0
 *
 * Inspects many PyTorch tensors at once through the C functions that DLPack 1.2 defines, so that an optimizer can check
 * in every step whether its gradients are unchanged. What may be done with a tensor is decided in torch_memory.py,
 * whenever something has changed.
 */
#ifndef GRADSCALER_PYTHON_TORCH_LOOK_H
#define GRADSCALER_PYTHON_TORCH_LOOK_H
#include <Python.h>

/*
 * `api` is the capsule torch.Tensor.__dlpack_c_exchange_api__, `tensors` a list of tensors and None. Returns (layout,
 * addresses): bytes that are equal for two lists if and only if dtypes, devices, shapes, strides and the places of None
 * are, and the address of each tensor, NULL for None. Returns None if an entry is not exactly of `type` or `parameter`,
 * if DLPack cannot describe it, or if the capsule's version is unknown.
 */
PyObject *gsc_torch_look(PyObject *api, PyObject *tensors, PyObject *type, PyObject *parameter);

/*
 * Inspects parameters and their .grad in one pass, while both are in cache. `lists` is a list of lists: all parameters
 * in order. Returns the addresses of the gradients, as above, if the parameters are the objects in the list `tensors`
 * with the layout `params` and the addresses `addresses`, and the gradients have the layout `grads`; else None.
 */
PyObject *gsc_torch_same(PyObject *api, PyObject *lists, PyObject *tensors, PyObject *params, PyObject *addresses,
                         PyObject *grads, PyObject *type, PyObject *parameter);

#endif /* GRADSCALER_PYTHON_TORCH_LOOK_H */
