/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two panels over the same steps: the loss of the three arms, and below it the scale of the one that has one, with a tick
 * for every skipped step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "run.h"
#include "svg.h"

enum {
  WIDTH = 760,
  HEIGHT = 560,
  LEFT = 76,
  RIGHT = 736,
  TOP = 84,
  MIDDLE = 336,
  LOWER = 372,
  BOTTOM = 496,
  TICK = 12
};

typedef struct panel {
  int steps;
  double low, high;
  int top, bottom;
} panel;

static double x_of(const panel *p, double step) { return LEFT + (RIGHT - LEFT) * step / p->steps; }
static double y_of(const panel *p, double value) {
  return p->bottom - (p->bottom - p->top) * (value - p->low) / (p->high - p->low);
}

static void draw_loss_axis(svg *s, const panel *p) {
  char label[32];
  for (int nats = (int)p->low; nats <= (int)p->high; nats++) {
    const double y = y_of(p, nats);
    svg_line(s, LEFT, y, RIGHT, y, nats == (int)p->low ? SVG_MUTED : SVG_GRID, 1.0, "");
    snprintf(label, sizeof label, "%d", nats);
    svg_text(s, LEFT - 10, y + 5, 13, SVG_END, SVG_MUTED, label);
  }
  svg_text_up(s, 24, (p->top + p->bottom) / 2.0, 13, SVG_INK, "loss, nats a byte");
}

static void draw_scale_axis(svg *s, const panel *p) {
  char label[96];
  for (int exponent = (int)p->low; exponent <= (int)p->high; exponent += 4) {
    const double y = y_of(p, exponent);
    svg_line(s, LEFT, y, RIGHT, y, exponent == (int)p->low ? SVG_MUTED : SVG_GRID, 1.0, "");
    svg_power(label, sizeof label, 2, exponent);
    svg_text(s, LEFT - 10, y + 5, 13, SVG_END, SVG_MUTED, label);
  }
  const int every = p->steps >= 250 ? 50 : p->steps >= 50 ? 25 : 10;
  for (int step = 0; step <= p->steps; step += every) {
    svg_line(s, x_of(p, step), BOTTOM, x_of(p, step), BOTTOM + 5, SVG_MUTED, 1.0, "");
    snprintf(label, sizeof label, "%d", step);
    svg_text(s, x_of(p, step), BOTTOM + 22, 13, SVG_MIDDLE, SVG_MUTED, label);
  }
  svg_text(s, (LEFT + RIGHT) / 2.0, BOTTOM + 48, 13, SVG_MIDDLE, SVG_INK, "update");
  svg_text_up(s, 24, (p->top + p->bottom) / 2.0, 13, SVG_INK, "loss scale");
}

static void draw_loss(svg *s, const panel *p, const run_result *r, const char *colour, double width) {
  double *x = allocate((size_t)p->steps, sizeof *x), *y = allocate((size_t)p->steps, sizeof *y);
  int count = 0;
  for (int i = 0; i < p->steps; i++) {
    /* A run that has diverged leaves the panel. */
    if (!(r->losses[i] <= p->high)) continue;
    x[count] = x_of(p, i + 0.5);
    y[count++] = y_of(p, r->losses[i]);
  }
  svg_path(s, x, y, count, colour, width);
  free(x);
  free(y);
}

static void draw_scale(svg *s, const panel *p, const run_result *r) {
  double *x = allocate(2 * (size_t)p->steps, sizeof *x), *y = allocate(2 * (size_t)p->steps, sizeof *y);
  for (int i = 0; i < p->steps; i++) {
    x[2 * i] = x_of(p, i);
    x[2 * i + 1] = x_of(p, i + 1);
    y[2 * i] = y[2 * i + 1] = y_of(p, log2(r->scales[i]));
    if (r->overflows[i]) {
      svg_line(s, x_of(p, i + 0.5), BOTTOM - 1, x_of(p, i + 0.5), BOTTOM - 1 - TICK, SVG_ORANGE, 1.6, "");
    }
  }
  svg_path(s, x, y, 2 * p->steps, SVG_BLUE, 2.0);
  free(x);
  free(y);
}

int plot_runs(const run_result runs[ARM_COUNT], const char *path) {
  static const char *const colours[ARM_COUNT] = {SVG_GREY, SVG_ORANGE, SVG_BLUE};
  const int steps = runs[0].recipe.steps;
  panel loss = {steps, 1.0, 6.0, TOP, MIDDLE}, scale = {steps, 40.0, 0.0, LOWER, BOTTOM};
  char subtitle[160];
  svg s;
  for (int i = 0; i < steps; i++) {
    const double exponent = log2(runs[ARM_SCALED].scales[i]);
    scale.low = fmin(scale.low, 4.0 * floor(exponent / 4.0));
    scale.high = fmax(scale.high, 4.0 * ceil(exponent / 4.0));
  }
  if (scale.high <= scale.low) scale.high = scale.low + 4.0;
  snprintf(subtitle, sizeof subtitle,
           "%d layers, width %d, bytes of this project's documentation; loss averaged over %g",
           (int)runs[0].recipe.shape.layers, (int)runs[0].recipe.shape.width, runs[0].recipe.mean_over);
  if (!svg_open(&s, path, WIDTH, HEIGHT, "A small GPT in fp32, in fp16, and in fp16 with loss scaling", subtitle)) {
    return 0;
  }
  draw_loss_axis(&s, &loss);
  draw_scale_axis(&s, &scale);
  for (int i = 0; i < ARM_COUNT; i++) {
    const double y = TOP + 22 + 22 * i;
    draw_loss(&s, &loss, &runs[i], colours[i], i == ARM_FP32 ? 5.0 : 2.0);
    svg_line(&s, RIGHT - 190, y, RIGHT - 156, y, colours[i], i == ARM_FP32 ? 5.0 : 2.0, "");
    svg_text(&s, RIGHT - 144, y + 4.5, 14, SVG_START, SVG_INK, arm_names[i]);
  }
  draw_scale(&s, &scale, &runs[ARM_SCALED]);
  return svg_close(&s);
}
