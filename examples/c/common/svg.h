/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLE_SVG_H
#define EXAMPLE_SVG_H
/*
 * Just enough SVG for the plots of the examples: a white sheet with lines, paths, markers and text.
 */
#include <stdio.h>

/** Colours of the plots. */
#define SVG_INK "#1f2933"
#define SVG_MUTED "#5f6c7b"
#define SVG_GRID "#e6e9ed"
#define SVG_GREY "#a9b4c0"
#define SVG_ORANGE "#d9480f"
#define SVG_BLUE "#1667b0"

typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

typedef struct svg {
  FILE *file;
  const char *path;
} svg;

/** 1, or 0 with a sentence on stderr. `title` is drawn, `subtitle` below it. */
int svg_open(svg *s, const char *path, int width, int height, const char *title, const char *subtitle);
/** Same result; 1 only if everything was written. */
int svg_close(svg *s);

/** `dash` is a dash pattern such as "4 4", or "" for a solid line. */
void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *colour, double width, const char *dash);
/** A line through `count` points. */
void svg_path(svg *s, const double *x, const double *y, int count, const char *colour, double width);
void svg_dot(svg *s, double x, double y, double radius, const char *colour);
/** `markup` is text, which may hold tspan elements. */
void svg_text(svg *s, double x, double y, double size, svg_anchor anchor, const char *colour, const char *markup);
/** Text that runs upwards. */
void svg_text_up(svg *s, double x, double y, double size, const char *colour, const char *markup);
/** Writes markup for a power such as 10 to the -4 into `out`. */
void svg_power(char *out, size_t size, int base, int exponent);

#endif
