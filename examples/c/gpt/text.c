/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text and cuts sequences out of it. */
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

/* Appends a file; 0 with a sentence if that fails. */
static int append(text *t, const char *path) {
  FILE *file = fopen(path, "rb");
  int good = file != NULL;
  for (size_t got = 1; good && got > 0;) {
    enum { PIECE = 1 << 16 };
    unsigned char *more = realloc(t->bytes, (size_t)t->count + PIECE);
    good = more != NULL;
    if (!good) break;
    t->bytes = more;
    got = fread(more + t->count, 1, PIECE, file);
    t->count += (int64_t)got;
    good = !ferror(file);
  }
  if (!good) fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
  if (file != NULL) fclose(file);
  return good;
}

int text_read(text *t, const char *const *paths, int count, int context) {
  memset(t, 0, sizeof *t);
  int good = 1;
  for (int i = 0; good && i < count; i++) good = append(t, paths[i]);
  t->train = t->count - t->count / 10;
  if (good && t->count > 20 * (int64_t)context) return 1;
  if (good) fprintf(stderr, "the text has %lld bytes; more than %d are needed\n", (long long)t->count, 20 * context);
  text_free(t);
  return 0;
}

void text_free(text *t) {
  free(t->bytes);
  memset(t, 0, sizeof *t);
}

static void cut(const text *t, int64_t first, int context, unsigned char *tokens, unsigned char *targets) {
  memcpy(tokens, t->bytes + first, (size_t)context);
  memcpy(targets, t->bytes + first + 1, (size_t)context);
}

void text_batch(const text *t, random_source *random, int batch, int context, unsigned char *tokens,
                unsigned char *targets) {
  for (int i = 0; i < batch; i++) {
    cut(t, random_below(random, (int)(t->train - context)), context, tokens + i * context, targets + i * context);
  }
}

void text_held_out(const text *t, int index, int batch, int context, unsigned char *tokens, unsigned char *targets) {
  const int64_t room = t->count - t->train - context;
  for (int i = 0; i < batch; i++) {
    cut(t, t->train + (int64_t)(index * batch + i) * context % room, context, tokens + i * context,
        targets + i * context);
  }
}
