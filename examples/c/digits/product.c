/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two rows by sixteen columns of the result stay in registers while the sum runs. That is enough speed here; an
 * application would call a BLAS.
 */
#include "product.h"

#include <stddef.h>

enum { ROWS = 2, COLUMNS = 16 };

/* Any block of at most ROWS x COLUMNS, for the edges. */
static void small_block(const float *a, const float *b, float *out, int k, int m, int rows, int columns) {
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++) {
      float sum = 0.0f;
      for (int p = 0; p < k; p++) sum += a[(size_t)i * k + p] * b[(size_t)p * m + j];
      out[(size_t)i * m + j] = sum;
    }
  }
}

static void full_block(const float *restrict a, const float *restrict b, float *restrict out, int k, int m) {
  float sum0[COLUMNS] = {0.0f}, sum1[COLUMNS] = {0.0f};
  for (int p = 0; p < k; p++) {
    const float *row = b + (size_t)p * m;
    const float a0 = a[p], a1 = a[k + p];
    for (int j = 0; j < COLUMNS; j++) {
      sum0[j] += a0 * row[j];
      sum1[j] += a1 * row[j];
    }
  }
  for (int j = 0; j < COLUMNS; j++) {
    out[j] = sum0[j];
    out[m + j] = sum1[j];
  }
}

void product(const float *a, const float *b, float *out, int n, int k, int m) {
  for (int i = 0; i < n; i += ROWS) {
    const int rows = n - i < ROWS ? n - i : ROWS;
    for (int j = 0; j < m; j += COLUMNS) {
      const int columns = m - j < COLUMNS ? m - j : COLUMNS;
      const float *left = a + (size_t)i * k;
      float *to = out + (size_t)i * m + j;
      if (rows == ROWS && columns == COLUMNS) {
        full_block(left, b + j, to, k, m);
      } else {
        small_block(left, b + j, to, k, m, rows, columns);
      }
    }
  }
}

void transpose(const float *a, float *out, int rows, int cols) {
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < cols; j++) out[(size_t)j * rows + i] = a[(size_t)i * cols + j];
  }
}
