// SPDX-License-Identifier: Apache-2.0
// apply.glsl over state in codes, split masters and stochastic parameters.
#define REAL float
#define COEFFICIENTS Coefficients_float
#define OF(name) name##_float
#define CODED 1
const bool kIsWide = false;
#include "apply.glsl"
