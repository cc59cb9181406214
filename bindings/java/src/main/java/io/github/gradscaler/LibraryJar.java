// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * A service that the jars of natives provide. A jar of natives on the module path is thereby resolved with this module,
 * without a {@code requires}. It has no methods: the library in such a jar is found as a resource.
 */
public interface LibraryJar {}
