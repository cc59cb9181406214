/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale over the steps of the run that starts at 2^30, from the scaler's own history: it halves at every overflow
 * and doubles after each row of clean steps. A tick marks each skipped step.
 */
#include <math.h>
#include <stdlib.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 760, HEIGHT = 440, LEFT = 76, RIGHT = 736, TOP = 84, BOTTOM = 376, TICK = 14 };

typedef struct axes {
  int64_t updates;
  /* Powers of two at the two ends of the vertical axis. */
  int low, high;
} axes;

static double x_of(const axes *a, double update) { return LEFT + (RIGHT - LEFT) * update / (double)a->updates; }

static double y_of(const axes *a, double scale) {
  return BOTTOM - (BOTTOM - TOP) * (log2(scale) - a->low) / (a->high - a->low);
}

/* Even exponents around everything in the history, with room below for the ticks. */
static axes fit(const run_result *r) {
  axes a = {r->history_count, 30, 30};
  for (int64_t i = 0; i < r->history_count; i++) {
    const int exponent = (int)floor(log2((double)r->history[i].scale));
    if (exponent < a.low) a.low = exponent;
    if (exponent > a.high) a.high = exponent;
  }
  a.low -= 2 + (a.low % 2 != 0);
  a.high += a.high % 2 != 0;
  return a;
}

static void draw_axes(svg *s, const axes *a) {
  char text[96];
  for (int exponent = a->low; exponent <= a->high; exponent += 2) {
    const double y = y_of(a, ldexp(1.0, exponent));
    svg_line(s, LEFT, y, RIGHT, y, exponent == a->low ? SVG_MUTED : SVG_GRID, 1.0, "");
    svg_power(text, sizeof text, 2, exponent);
    svg_text(s, LEFT - 10, y + 5, 13, SVG_END, SVG_MUTED, text);
  }
  const int every = a->updates > 300 ? 100 : 50;
  for (int update = 0; update <= a->updates; update += every) {
    const double x = x_of(a, update);
    svg_line(s, x, BOTTOM, x, BOTTOM + 5, SVG_MUTED, 1.0, "");
    snprintf(text, sizeof text, "%d", update);
    svg_text(s, x, BOTTOM + 22, 13, SVG_MIDDLE, SVG_MUTED, text);
  }
  svg_text(s, (LEFT + RIGHT) / 2.0, BOTTOM + 48, 13, SVG_MIDDLE, SVG_INK, "training step");
  svg_text_up(s, 24, (TOP + BOTTOM) / 2.0, 13, SVG_INK, "loss scale");
}

/* A horizontal piece for each step at the scale it used, joined by vertical ones. */
static void draw_scale(svg *s, const axes *a, const run_result *r) {
  double *x = allocate(2 * (size_t)r->history_count, sizeof *x);
  double *y = allocate(2 * (size_t)r->history_count, sizeof *y);
  double scale = (double)EXCESSIVE_SCALE;
  for (int64_t i = 0; i < r->history_count; i++) {
    x[2 * i] = x_of(a, (double)i);
    x[2 * i + 1] = x_of(a, (double)i + 1);
    y[2 * i] = y[2 * i + 1] = y_of(a, scale);
    scale = (double)r->history[i].scale;
  }
  svg_path(s, x, y, (int)(2 * r->history_count), SVG_BLUE, 2.5);
  free(x);
  free(y);
}

static void draw_ticks(svg *s, const axes *a, const run_result *r) {
  for (int64_t i = 0; i < r->history_count; i++) {
    const double x = x_of(a, (double)i + 0.5);
    if (r->history[i].overflow) svg_line(s, x, BOTTOM - 1, x, BOTTOM - 1 - TICK, SVG_ORANGE, 1.6, "");
  }
}

/* The ticks of the first steps run together: say how many there are. */
static void draw_descent(svg *s, const axes *a, const run_result *r) {
  char text[64];
  int64_t first = 0;
  while (first < r->history_count && r->history[first].overflow) first++;
  if (first < 3) return;
  snprintf(text, sizeof text, "first %lld steps", (long long)first);
  svg_text(s, x_of(a, 0) + 2, BOTTOM - TICK - 7, 12, SVG_START, SVG_ORANGE, text);
}

static void draw_legend(svg *s, const run_result *r) {
  char text[96];
  const double x = RIGHT - 312, y = TOP + 26;
  svg_line(s, x, y, x + 34, y, SVG_BLUE, 2.5, "");
  svg_text(s, x + 46, y + 4.5, 14, SVG_START, SVG_INK, "loss scale");
  svg_line(s, x + 17, y + 24 - TICK / 2.0, x + 17, y + 24 + TICK / 2.0, SVG_ORANGE, 1.6, "");
  snprintf(text, sizeof text, "skipped step (overflow), %lld in all", (long long)r->skipped);
  svg_text(s, x + 46, y + 28.5, 14, SVG_START, SVG_INK, text);
}

int plot_scale(const experiment *e, const char *path) {
  const run_result *r = &e->settling;
  const axes a = fit(r);
  svg s;
  char subtitle[160];
  snprintf(subtitle, sizeof subtitle,
           "halved at each overflow, doubled after %d clean steps; fp16 run on the digits, loss x 1, accuracy %.1f %%",
           GROWTH_INTERVAL, 100.0 * r->accuracy);
  if (!svg_open(&s, path, WIDTH, HEIGHT, "A scale that starts far too high settles by itself", subtitle)) return 0;
  draw_axes(&s, &a);
  draw_ticks(&s, &a, r);
  draw_scale(&s, &a, r);
  draw_descent(&s, &a, r);
  draw_legend(&s, r);
  return svg_close(&s);
}
