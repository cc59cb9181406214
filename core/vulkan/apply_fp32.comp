// SPDX-License-Identifier: Apache-2.0
// apply.glsl in fp32.
#define REAL float
#define COEFFICIENTS Coefficients_float
#define OF(name) name##_float
#define CODED 0
const bool kIsWide = false;
#include "apply.glsl"
