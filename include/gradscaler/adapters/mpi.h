/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_ADAPTERS_MPI_H
#define GRADSCALER_ADAPTERS_MPI_H
/*
 * A gsc_reducer over an MPI communicator, for scalers on the CPU only: MPI knows nothing of CUDA streams and would not
 * wait for work enqueued on them. The library itself does not depend on MPI; a program that includes this header needs
 * <mpi.h> and links MPI.
 *
 *     static MPI_Comm comm = MPI_COMM_WORLD;
 *     gsc_reducer reducer = gsc_mpi_reducer(&comm);
 *     gsc_scaler_set_reducer(scaler, &reducer);
 */
#include <gradscaler/gradscaler.h>
#include <mpi.h>

/** A gsc_all_reduce_fn; user points at the MPI_Comm. Not 0: MPI's error, where the communicator's handler returns. */
static inline int32_t gsc_mpi_all_reduce(void *user, double *values, int64_t count, gsc_stream stream) {
  (void)stream;
  return (int32_t)MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_SUM, *(const MPI_Comm *)user);
}

/**
 * The reducer over `*comm`. The variable and the communicator stay the caller's and must outlive the scaler or the next
 * gsc_scaler_set_reducer.
 */
static inline gsc_reducer gsc_mpi_reducer(MPI_Comm *comm) {
  gsc_reducer reducer;
  reducer.struct_size = (uint32_t)sizeof reducer;
  reducer.flags = 0;
  reducer.all_reduce = gsc_mpi_all_reduce;
  reducer.user = comm;
  return reducer;
}

#endif /* GRADSCALER_ADAPTERS_MPI_H */
