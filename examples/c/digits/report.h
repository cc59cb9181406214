/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIGITS_REPORT_H
#define DIGITS_REPORT_H
/*
 * The results of an experiment: a table for people, files for programs. The writers return 1, or 0 with a sentence on
 * stderr.
 */
#include "experiment.h"

void report_table(const experiment *e);
/** One line for each run of the grid. */
int report_results(const experiment *e, const char *path);
/** One line for each update of the run from 2^30. */
int report_history(const experiment *e, const char *path);

#endif
