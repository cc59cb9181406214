// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * Provided by the jars of natives, so that a jar of natives on the module path is resolved with this module although
 * nobody requires it. It has no methods: the library in such a jar is found as a resource.
 */
public interface LibraryJar {}
