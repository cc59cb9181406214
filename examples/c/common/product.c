/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four rows by sixteen columns of the result stay in registers while the sum runs. That is enough speed here; an
 * application would call a BLAS.
 */
#include "product.h"

#include <stddef.h>

enum { ROWS = 4, COLUMNS = 16 };

/* One copy for each of these instruction sets, chosen when the program starts. The sanitizers are not ready by then. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_TARGET __attribute__((target_clones("avx512f", "avx2", "default")))
#define INTO_EACH_TARGET static inline __attribute__((always_inline))
#else
#define FOR_EACH_TARGET
#define INTO_EACH_TARGET static inline
#endif

/* Any block of at most ROWS x COLUMNS, for the edges. */
static void small_block(const float *a, const float *b, float *out, int k, int m, int rows, int columns) {
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++) {
      float sum = 0;
      for (int p = 0; p < k; p++) sum += a[(size_t)i * k + p] * b[(size_t)p * m + j];
      out[(size_t)i * m + j] = sum;
    }
  }
}

INTO_EACH_TARGET void full_block(const float *restrict a, const float *restrict b, float *restrict out, int k, int m) {
  float sum0[COLUMNS] = {0}, sum1[COLUMNS] = {0}, sum2[COLUMNS] = {0}, sum3[COLUMNS] = {0};
  for (int p = 0; p < k; p++) {
    const float *row = b + (size_t)p * m;
    const float a0 = a[p], a1 = a[k + p], a2 = a[2 * k + p], a3 = a[3 * k + p];
    for (int j = 0; j < COLUMNS; j++) {
      sum0[j] += a0 * row[j];
      sum1[j] += a1 * row[j];
      sum2[j] += a2 * row[j];
      sum3[j] += a3 * row[j];
    }
  }
  for (int j = 0; j < COLUMNS; j++) {
    out[j] = sum0[j];
    out[m + j] = sum1[j];
    out[2 * m + j] = sum2[j];
    out[3 * m + j] = sum3[j];
  }
}

FOR_EACH_TARGET void product(const float *a, const float *b, float *out, int n, int k, int m) {
  for (int j = 0; j < m; j += COLUMNS) {
    const int columns = m - j < COLUMNS ? m - j : COLUMNS;
    for (int i = 0; i < n; i += ROWS) {
      const int rows = n - i < ROWS ? n - i : ROWS;
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
