/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two real ranks under the MPI adapter: an overflow on one skips the step on both, and clipping uses the norm over both.
 * Every rank checks its results and prints what failed.
 */
#include <gradscaler/adapters/mpi.h>
#include <math.h>
#include <stdio.h>

static int failures = 0;

#define EXPECT(condition) \
  ((condition) ? (void)0 : (void)(++failures, fprintf(stderr, "line %d: %s\n", __LINE__, #condition)))
#define OK(call) EXPECT((call) == GSC_OK)

static void run(MPI_Comm *comm, int rank) {
  float p[3] = {1.0F, 1.0F, 1.0F};
  float g[3] = {8.0F, 8.0F, 8.0F};
  const int64_t count = rank == 0 ? 1 : 3;
  const gsc_tensor params_tensor = GSC_TENSOR_INIT(p, count, GSC_FP32);
  const gsc_tensor grads_tensor = GSC_TENSOR_INIT(g, count, GSC_FP32);
  const gsc_reducer reducer = gsc_mpi_reducer(comm);
  gsc_context_options context_options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_scaler_options scaler_options = GSC_SCALER_OPTIONS_INIT;
  gsc_optimizer_options optimizer_options;
  gsc_context *context = NULL;
  gsc_tensor_list *params = NULL, *grads = NULL;
  gsc_optimizer *optimizer = NULL;
  gsc_scaler *scaler = NULL;
  gsc_report report = {0};
  int64_t applied = -1, skipped = -1;

  context_options.num_threads = 1;
  scaler_options.init_scale = 4.0F;
  OK(gsc_optimizer_options_init(&optimizer_options, sizeof optimizer_options, GSC_SGD));
  optimizer_options.lr = 1.0;
  OK(gsc_context_create(&context_options, &context));
  OK(gsc_tensor_list_create(context, &params_tensor, 1, NULL, &params));
  OK(gsc_tensor_list_create(context, &grads_tensor, 1, NULL, &grads));
  OK(gsc_optimizer_create(context, &optimizer_options, params, grads, NULL, NULL, 0, &optimizer));
  OK(gsc_scaler_create(context, &scaler_options, &scaler));
  OK(gsc_scaler_set_reducer(scaler, &reducer));

  /* Four gradients of 2 in all, so that their norm is 4. */
  OK(gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, NULL));
  OK(gsc_scaler_step_and_update(scaler, optimizer, NULL));
  EXPECT(fabs((double)p[0] - (1.0 - 2.0 / (4.0 + 1e-6))) < 1e-6);
  report.struct_size = sizeof report;
  OK(gsc_scaler_get_report_sync(scaler, NULL, &report, NULL));
  EXPECT(report.grad_norm == 4.0);

  if (rank == 1) g[2] = HUGE_VALF;
  OK(gsc_scaler_step_and_update(scaler, optimizer, NULL));
  OK(gsc_optimizer_get_steps_sync(optimizer, &applied, &skipped, NULL));
  EXPECT(applied == 1 && skipped == 1);
  OK(gsc_scaler_get_report_sync(scaler, NULL, &report, NULL));
  EXPECT(report.scale == 2.0F && report.nonfinite_count == 1 && report.inf_count == (rank == 1 ? 1 : 0));

  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(optimizer);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(context);
}

int main(int argc, char **argv) {
  MPI_Comm comm = MPI_COMM_WORLD;
  int rank = -1, ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  EXPECT(ranks == 2);
  if (ranks == 2) run(&comm, rank);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
