/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIGITS_REPORT_H
#define DIGITS_REPORT_H
/*
 * What an experiment found: a table for people, files for programs, and plots. The writers return 1, or 0 with a sentence
 * on stderr.
 */
#include "experiment.h"

void report_table(const experiment *e);
/** One line for each run of the grid. */
int report_results(const experiment *e, const char *path);
/** One line for each update of the run from 2^30. */
int report_history(const experiment *e, const char *path);
/** Accuracy against loss magnitude, with its range over the seeds. */
int plot_accuracy(const experiment *e, const char *path);
/** The scale of the run from 2^30, with a tick at each skipped step. */
int plot_scale(const experiment *e, const char *path);

#endif
