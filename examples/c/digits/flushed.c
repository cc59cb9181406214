/* SPDX-License-Identifier: Apache-2.0 */
/* The reference gradient is of the unscaled loss: a scale changes which gradients survive, never which ones exist. */
#include "flushed.h"

#include <stdlib.h>
#include <string.h>

void flushed_create(flushed_meter *f, const device *d, int max_rows) {
  memset(f, 0, sizeof *f);
  mlp_create(&f->reference, d, GSC_FP32, max_rows);
  f->gradient = allocate((size_t)max_rows * DIGITS_CLASSES, sizeof *f->gradient);
}

void flushed_destroy(flushed_meter *f) {
  mlp_destroy(&f->reference);
  free(f->gradient);
}

void flushed_sample(flushed_meter *f, const mlp *m, const float *pixels, const int *labels, int rows, float magnitude) {
  mlp *r = &f->reference;
  for (int i = 0; i < MLP_TENSORS; i++) tensor_cast(r->device, m->weights[i], r->weights[i]);
  mlp_forward(r, pixels, rows);
  mlp_loss(r, labels, rows, magnitude, f->gradient);
  tensor_cast(r->device, tensor_of(f->gradient, (int64_t)rows * DIGITS_CLASSES), mlp_first_delta(r, rows));
  mlp_backward(r, rows);
  for (int i = 0; i < MLP_TENSORS; i += 2) {
    const uint16_t *half = m->grads[i].data;
    const float *exact = r->grads[i].data;
    for (int64_t j = 0; j < m->grads[i].count; j++) {
      if (exact[j] == 0.0f) continue;
      f->nonzero++;
      f->flushed += (half[j] & 0x7fff) == 0; /* +0 or -0 */
    }
  }
  if (f->samples++ == 0) f->first_share = flushed_share(f);
}

double flushed_share(const flushed_meter *f) { return f->nonzero > 0 ? (double)f->flushed / (double)f->nonzero : 0.0; }
