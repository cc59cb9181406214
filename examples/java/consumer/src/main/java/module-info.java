// SPDX-License-Identifier: Apache-2.0

/** An application. The natives are resolved with gradscaler's module: nothing has to be said about them here. */
module consumer {
  requires io.github.gradscaler;
}
