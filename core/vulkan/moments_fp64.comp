// SPDX-License-Identifier: Apache-2.0
// moments.glsl in fp64.
#define REAL double
#define COEFFICIENTS Coefficients_double
#define OF(name) name##_double
#define CODED 0
const bool kIsWide = true;
#include "moments.glsl"
