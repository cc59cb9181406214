/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws only when the percentage has changed, so that it costs nothing in the training loop.
 */
#define _POSIX_C_SOURCE 200809L /* fileno, isatty */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 32, PLAIN_EVERY = 20 };

void progress_start(progress *p, long long total_steps) {
  memset(p, 0, sizeof *p);
  p->total = total_steps > 0 ? total_steps : 1;
  p->drawn = -1;
  p->terminal = isatty(fileno(stderr));
}

void progress_label(progress *p, const char *label) { snprintf(p->label, sizeof p->label, "%s", label); }

void progress_advance(progress *p, int steps) {
  p->done += steps;
  const int percent = (int)(100 * p->done / p->total);
  if (percent == p->drawn || (!p->terminal && percent / PLAIN_EVERY == p->drawn / PLAIN_EVERY)) return;
  p->drawn = percent;
  if (!p->terminal) {
    fprintf(stderr, "%3d %%  %s\n", percent, p->label);
    return;
  }
  char bar[BAR_WIDTH + 1];
  const int filled = BAR_WIDTH * percent / 100;
  memset(bar, '#', (size_t)filled);
  memset(bar + filled, '.', (size_t)(BAR_WIDTH - filled));
  bar[BAR_WIDTH] = '\0';
  fprintf(stderr, "\r\033[K[%s] %3d %%  %s", bar, percent, p->label);
  fflush(stderr);
}

void progress_finish(progress *p) {
  if (p->terminal) fprintf(stderr, "\r\033[K");
}
