/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accuracy against loss magnitude: one line for each arm through the means, with a bar from the lowest to the highest
 * seed. fp32 is drawn broad and below, since scaled fp16 lies on top of it.
 */
#include <math.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 760, HEIGHT = 440, LEFT = 76, RIGHT = 736, TOP = 84, BOTTOM = 376 };

typedef struct style {
  const char *colour;
  double width;
  double radius;
  /* Moves the bars of an arm sideways, so that they can be told apart. */
  double shift;
} style;

static const style styles[ARM_COUNT] = {
    {SVG_GREY, 7.0, 5.5, -5.0}, {SVG_ORANGE, 2.5, 4.5, 0.0}, {SVG_BLUE, 2.5, 4.5, 5.0}};

/* Magnitude 1 is on the left, the smallest on the right. */
static double x_of(const experiment *e, double magnitude) {
  const double decades = -log10((double)e->magnitudes[e->magnitude_count - 1]);
  return LEFT + 20 + (RIGHT - LEFT - 40) * -log10(magnitude) / decades;
}

static double y_of(double accuracy) { return BOTTOM - (BOTTOM - TOP) * accuracy; }

static void draw_axes(svg *s, const experiment *e) {
  char text[96];
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = y_of(percent / 100.0);
    svg_line(s, LEFT, y, RIGHT, y, percent == 0 ? SVG_MUTED : SVG_GRID, 1.0, "");
    snprintf(text, sizeof text, "%d %%", percent);
    svg_text(s, LEFT - 10, y + 4, 13, SVG_END, SVG_MUTED, text);
  }
  const int decades = (int)lround(-log10((double)e->magnitudes[e->magnitude_count - 1]));
  for (int i = 0; i <= decades; i++) {
    const double x = x_of(e, pow(10.0, -i));
    svg_line(s, x, BOTTOM, x, BOTTOM + 5, SVG_MUTED, 1.0, "");
    svg_power(text, sizeof text, 10, -i);
    svg_text(s, x, BOTTOM + 23, 13, SVG_MIDDLE, SVG_MUTED, i == 0 ? "1" : text);
  }
  svg_text(s, (LEFT + RIGHT) / 2.0, BOTTOM + 48, 13, SVG_MIDDLE, SVG_INK,
           "factor on the loss (about 1/N for a mean over N elements)");
  svg_text_up(s, 24, (TOP + BOTTOM) / 2.0, 13, SVG_INK, "accuracy on the test images");
  svg_line(s, LEFT, y_of(0.1), RIGHT, y_of(0.1), SVG_MUTED, 1.0, "2 4");
  svg_text(s, LEFT + 8, y_of(0.1) - 6, 12, SVG_START, SVG_MUTED, "chance");
}

static void draw_arm(svg *s, const experiment *e, int a) {
  const style *look = &styles[a];
  double x[MOST_MAGNITUDES], y[MOST_MAGNITUDES];
  for (int m = 0; m < e->magnitude_count; m++) {
    x[m] = x_of(e, (double)e->magnitudes[m]);
    y[m] = y_of(e->cells[m][a].accuracy_mean);
  }
  svg_path(s, x, y, e->magnitude_count, look->colour, look->width);
  for (int m = 0; m < e->magnitude_count; m++) {
    const double bar = x[m] + look->shift;
    const double low = y_of(e->cells[m][a].accuracy_min), high = y_of(e->cells[m][a].accuracy_max);
    svg_line(s, bar, low, bar, high, look->colour, 1.5, "");
    svg_line(s, bar - 4, low, bar + 4, low, look->colour, 1.5, "");
    svg_line(s, bar - 4, high, bar + 4, high, look->colour, 1.5, "");
    svg_dot(s, x[m], y[m], look->radius, look->colour);
  }
}

/* Numbers beside the points where training failed. */
static void draw_values(svg *s, const experiment *e, int a) {
  char text[16];
  for (int m = 0; m < e->magnitude_count; m++) {
    const double mean = e->cells[m][a].accuracy_mean;
    const int last = m == e->magnitude_count - 1;
    const double x = x_of(e, (double)e->magnitudes[m]);
    if (mean > 0.8) continue;
    snprintf(text, sizeof text, "%.0f %%", 100.0 * mean);
    svg_text(s, last ? x - 9 : x + 10, y_of(mean) + (last ? 16 : -7), 13, last ? SVG_END : SVG_START, styles[a].colour,
             text);
  }
}

static void draw_legend(svg *s) {
  static const int order[ARM_COUNT] = {ARM_FP32, ARM_SCALED, ARM_FP16};
  for (int i = 0; i < ARM_COUNT; i++) {
    const style *look = &styles[order[i]];
    const double y = y_of(0.62) + 24 * i;
    svg_line(s, LEFT + 30, y, LEFT + 64, y, look->colour, look->width, "");
    svg_dot(s, LEFT + 47, y, look->radius, look->colour);
    svg_text(s, LEFT + 76, y + 4.5, 14, SVG_START, SVG_INK, arm_names[order[i]]);
  }
}

int plot_accuracy(const experiment *e, const char *path) {
  svg s;
  char subtitle[160];
  snprintf(subtitle, sizeof subtitle,
           "64-64-64-10 network on handwritten digits, %d steps; mean of %d seed%s, bars: %s", e->steps, e->seeds,
           e->seeds == 1 ? "" : "s", "lowest to highest");
  if (!svg_open(&s, path, WIDTH, HEIGHT, "Small losses train in fp16 only if they are scaled", subtitle)) return 0;
  draw_axes(&s, e);
  draw_arm(&s, e, ARM_FP32);
  draw_arm(&s, e, ARM_FP16);
  draw_arm(&s, e, ARM_SCALED);
  draw_values(&s, e, ARM_FP16);
  draw_legend(&s);
  return svg_close(&s);
}
