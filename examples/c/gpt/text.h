/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The text to learn: files one after the other, as bytes. The last tenth is held out. */
#include <stdint.h>

#include "random.h"

typedef struct text {
  unsigned char *bytes;
  int64_t count;
  /** Bytes to train on; the others are held out. */
  int64_t train;
} text;

/** 1, or 0 with a sentence on stderr. Every file must be readable, and there must be more than 20 * context bytes. */
int text_read(text *t, const char *const *paths, int count, int context);
void text_free(text *t);
/** `batch` sequences of `context` bytes from anywhere in the training text, and the byte that follows each byte. */
void text_batch(const text *t, random_source *random, int batch, int context, unsigned char *tokens,
                unsigned char *targets);
/** The same from the text held out: batch number `index`, always the same one. */
void text_held_out(const text *t, int index, int batch, int context, unsigned char *tokens, unsigned char *targets);
