/* SPDX-License-Identifier: Apache-2.0 */
#include "formats.h"

#include <stddef.h>
#include <string.h>

/* The number of a name among `count`; -1 if it is none of them, 0 if there is no name. */
static int32_t number_of(const char *name, const char *const *names, int32_t count) {
  for (int32_t i = 0; name != NULL && i < count; i++) {
    if (strcmp(name, names[i]) == 0) return i;
  }
  return name == NULL ? 0 : -1;
}

int formats_of(const char *state, const char *master, int32_t *state_format, int32_t *master_format) {
  static const char *const states[] = {"full", "16bit", "8bit"};
  static const char *const masters[] = {"fp32", "split16", "split8", "stochastic"};
  *state_format = number_of(state, states, 3);
  *master_format = number_of(master, masters, 4);
  return *state_format >= 0 && *master_format >= 0;
}
