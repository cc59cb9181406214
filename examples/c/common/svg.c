/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes SVG elements one after the other. Coordinates are pixels from the upper left corner.
 */
#include "svg.h"

#include <errno.h>
#include <string.h>

int svg_open(svg *s, const char *path, int width, int height, const char *title, const char *subtitle) {
  s->path = path;
  s->file = fopen(path, "w");
  if (s->file == NULL) {
    fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
    return 0;
  }
  fprintf(s->file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "font-family=\"'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n<title>%s</title>\n"
          "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\"/>\n",
          width, height, width, height, title, width, height);
  svg_text(s, 24, 34, 18, SVG_START, SVG_INK, title);
  svg_text(s, 24, 56, 13, SVG_START, SVG_MUTED, subtitle);
  return 1;
}

int svg_close(svg *s) {
  fprintf(s->file, "</svg>\n");
  const int failed = ferror(s->file);
  if (fclose(s->file) == 0 && !failed) return 1;
  fprintf(stderr, "cannot write %s\n", s->path);
  return 0;
}

void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *colour, double width, const char *dash) {
  fprintf(s->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"", x1, y1,
          x2, y2, colour, width);
  if (dash[0] != '\0') fprintf(s->file, " stroke-dasharray=\"%s\"", dash);
  fprintf(s->file, "/>\n");
}

/* Whether point i lies on the horizontal or vertical line through both its neighbours. */
static int within_line(const double *x, const double *y, int i, int count) {
  return i > 0 && i + 1 < count && ((x[i - 1] == x[i] && x[i] == x[i + 1]) || (y[i - 1] == y[i] && y[i] == y[i + 1]));
}

void svg_path(svg *s, const double *x, const double *y, int count, const char *colour, double width) {
  fprintf(s->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-linejoin=\"round\" points=\"",
          colour, width);
  for (int i = 0; i < count; i++) {
    if (!within_line(x, y, i, count)) fprintf(s->file, "%s%.1f,%.1f", i > 0 ? " " : "", x[i], y[i]);
  }
  fprintf(s->file, "\"/>\n");
}

void svg_dot(svg *s, double x, double y, double radius, const char *colour) {
  fprintf(s->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"1\"/>\n", x,
          y, radius, colour);
}

void svg_text(svg *s, double x, double y, double size, svg_anchor anchor, const char *colour, const char *markup) {
  static const char *const anchors[] = {"start", "middle", "end"};
  fprintf(s->file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y,
          size, anchors[anchor], colour, markup);
}

void svg_text_up(svg *s, double x, double y, double size, const char *colour, const char *markup) {
  fprintf(s->file,
          "<text transform=\"translate(%.1f %.1f) rotate(-90)\" font-size=\"%g\" text-anchor=\"middle\" "
          "fill=\"%s\">%s</text>\n",
          x, y, size, colour, markup);
}

void svg_power(char *out, size_t size, int base, int exponent) {
  /* U+2212 is the minus sign that lines up with digits. */
  snprintf(out, size, "%d<tspan dy=\"-5\" font-size=\"9.5\">%s%d</tspan>", base, exponent < 0 ? "\xe2\x88\x92" : "",
           exponent < 0 ? -exponent : exponent);
}
