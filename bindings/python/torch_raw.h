/* SPDX-License-Identifier: Apache-2.0
 *
 * Inspects many PyTorch tensors at once where PyTorch keeps what it knows of them, without a call for each: in a
 * third to a sixth of the time that torch_look.h takes, most of it spent waiting for memory. PyTorch promises no
 * layout of its objects, so torch/_raw.py first compares what is read here with what PyTorch says, of tensors made
 * for that purpose, and of all that are to be watched. What differs in anything from what was recorded is left to
 * torch_look.h.
 */
#ifndef GRADSCALER_PYTHON_TORCH_RAW_H
#define GRADSCALER_PYTHON_TORCH_RAW_H
#include <Python.h>

/*
 * For the comparison with PyTorch. Each reads one pointer further than the last, so that none is followed that has not
 * been compared: the address of the implementation, as `_cdata`; (storage, autograd's data, extra data, version
 * counter, object, table of virtual functions, rank, extents and strides, offset, count, dtype, dispatch keys) of it;
 * (gradient's implementation, version, data, bytes of storage, 1 if its pointer has checks), 0 for what it has not.
 * -1 as the address: this system's layout is not known.
 */
PyObject *gsc_torch_raw_address(PyObject *tensor);
PyObject *gsc_torch_raw_fields(PyObject *tensor);
PyObject *gsc_torch_raw_behind(PyObject *tensor);

/*
 * Records the tensors in the list `params` and their gradients. `types` are the classes they may have, exactly, and
 * `absent` is the implementation of an undefined gradient. Returns (record, addresses of params, addresses of
 * gradients), addresses as bytes; None if one of them is not a plain dense tensor of at most five dimensions.
 */
PyObject *gsc_torch_raw_record(PyObject *params, PyObject *types, PyObject *plain, PyObject *absent);

/*
 * `lists` is a list of lists, all parameters in order. Returns the addresses of the gradients if the parameters are the
 * recorded ones, in the same memory, and both they and the gradients have the recorded types, dtypes, devices, shapes,
 * strides and flags; None if anything is different. Runs no Python code.
 */
PyObject *gsc_torch_raw_same(PyObject *record, PyObject *lists);

/* As torch.autograd.graph.increment_version of a list of tensors. False, and nothing has changed, if one of them has no
 * version. */
PyObject *gsc_torch_raw_bump(PyObject *tensors);

#endif /* GRADSCALER_PYTHON_TORCH_RAW_H */
