/* SPDX-License-Identifier: Apache-2.0 */
/* The adapters in C, each included twice. The tests themselves are C++. */
#include <gradscaler/adapters/dlpack.h>
#include <gradscaler/adapters/nccl.h>

gsc_reducer adapters_nccl_in_c(ncclComm_t comm);
gsc_reducer adapters_nccl_in_c(ncclComm_t comm) { return gsc_nccl_reducer(comm); }

gsc_status adapters_dlpack_in_c(const DLTensor *dl, gsc_tensor *out_tensor);
gsc_status adapters_dlpack_in_c(const DLTensor *dl, gsc_tensor *out_tensor) {
  return gsc_dlpack_tensor(dl, out_tensor);
}
