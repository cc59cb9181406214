/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIGITS_PROGRESS_H
#define DIGITS_PROGRESS_H
/*
 * How far the program is, on stderr: a bar that is redrawn on a terminal, a plain line now and then elsewhere.
 */

typedef struct progress {
  long long total;
  long long done;
  /** Last percentage drawn. */
  int drawn;
  int terminal;
  char label[64];
} progress;

void progress_start(progress *p, long long total_steps);
/** What is being worked on from now on. */
void progress_label(progress *p, const char *label);
void progress_advance(progress *p, int steps);
/** Removes the bar, so that the table starts on a clean line. */
void progress_finish(progress *p);

#endif
