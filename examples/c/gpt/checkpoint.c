/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint: recipe, step and batches, then the state of the scaler, of the optimizer, and what the optimizer updates.
 * If that is fp32 master weights, the fp16 weights are made again by rounding them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

static const char magic[8] = "GPTCKPT";

/* What a run must have in common with its checkpoint. */
typedef struct header {
  char magic[8];
  gpt_shape shape;
  int32_t arm, batch, accumulate, steps, step, state_format, master_format, reserved;
  double mean_over;
  uint64_t seed, batches;
  int64_t optimizer_bytes;
} header;

static header header_of(trainer *t) {
  const recipe *r = &t->recipe;
  header h;
  memset(&h, 0, sizeof h);
  memcpy(h.magic, magic, sizeof magic);
  h.shape = r->shape;
  h.arm = (int32_t)r->arm;
  h.batch = r->batch;
  h.accumulate = r->accumulate;
  h.steps = r->steps;
  h.step = t->step;
  h.state_format = r->state_format;
  h.master_format = r->master_format;
  h.mean_over = r->mean_over;
  h.seed = r->seed;
  h.batches = t->batches.state;
  CALL(t->device, optimizer_get_save_size(t->optimizer, &h.optimizer_bytes), "size of the state");
  return h;
}

static size_t bytes_of(const gsc_tensor *t) { return (size_t)t->count * (t->dtype == GSC_FP16 ? 2 : sizeof(float)); }

int trainer_save(trainer *t, const char *path) {
  const header h = header_of(t);
  gsc_scaler_state scaler;
  memset(&scaler, 0, sizeof scaler);
  scaler.struct_size = sizeof scaler;
  if (t->recipe.arm == ARM_SCALED) {
    CALL(t->device, scaler_get_state_sync(t->scaler, &scaler, NULL), "state of the scaler");
  }
  void *optimizer = allocate((size_t)h.optimizer_bytes, 1);
  CALL(t->device, optimizer_save_sync(t->optimizer, optimizer, h.optimizer_bytes, NULL), "state");
  FILE *file = fopen(path, "wb");
  int good = file != NULL && fwrite(&h, sizeof h, 1, file) == 1 && fwrite(&scaler, sizeof scaler, 1, file) == 1 &&
             fwrite(optimizer, (size_t)h.optimizer_bytes, 1, file) == 1;
  for (int i = 0; good && i < t->model.tensors; i++) {
    const gsc_tensor *p = &t->params_of_step[i];
    good = fwrite(p->data, bytes_of(p), 1, file) == 1;
  }
  if (file != NULL && fclose(file) != 0) good = 0;
  if (!good) fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
  free(optimizer);
  return good;
}

/* The file is of this run: everything but how far it has come is the same. */
static int fits(const header *found, const header *own) {
  header same = *found;
  same.step = own->step;
  same.batches = own->batches;
  return memcmp(&same, own, sizeof same) == 0;
}

int trainer_load(trainer *t, const char *path) {
  const header own = header_of(t);
  header h;
  gsc_scaler_state scaler;
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
    return 0;
  }
  void *optimizer = allocate((size_t)own.optimizer_bytes, 1);
  int good = fread(&h, sizeof h, 1, file) == 1 && fits(&h, &own) && fread(&scaler, sizeof scaler, 1, file) == 1 &&
             scaler.struct_size == sizeof scaler && /* or the library would read beyond it */
             fread(optimizer, (size_t)own.optimizer_bytes, 1, file) == 1;
  for (int i = 0; good && i < t->model.tensors; i++) {
    const gsc_tensor *p = &t->params_of_step[i];
    good = fread(p->data, bytes_of(p), 1, file) == 1;
    if (good && t->model_copy != NULL) tensor_cast(t->device, *p, t->model.weights[i]);
  }
  fclose(file);
  if (good) {
    t->step = h.step;
    t->batches.state = h.batches;
    CALL(t->device, optimizer_load_sync(t->optimizer, optimizer, own.optimizer_bytes, NULL), "state");
    if (t->recipe.arm == ARM_SCALED) {
      CALL(t->device, scaler_set_state(t->scaler, &scaler, NULL), "state of the scaler");
    }
  } else {
    fprintf(stderr, "%s is not a whole checkpoint of a run with these options\n", path);
  }
  free(optimizer);
  return good;
}
