// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.io.Serializable;

/**
 * What a failure is about, in the words of the C interface: of "state[1][7] has 64 elements" the name is "state", the
 * index 1 and the tensor 7; of "options.init_scale is 0" the name is "options" and the field "init_scale".
 */
public final class FailedArgument implements Serializable {
  private static final long serialVersionUID = 1;

  /** Never null. */
  private final String name;

  /** Null if there is none. */
  private final String field;

  /** -1 if there is none. */
  private final long index;

  /** -1 if there is none. */
  private final long tensor;

  FailedArgument(String name, String field, long index, long tensor) {
    this.name = name;
    this.field = field;
    this.index = index;
    this.tensor = tensor;
  }

  /** The parameter of the C function, such as "tensors". */
  public String name() {
    return name;
  }

  /** The member, if the argument or an entry of it is a struct, such as "init_scale"; null if there is none. */
  public @Nullable String field() {
    return field;
  }

  /** The state slot, parameter group or bin; -1 if there is none. */
  public long index() {
    return index;
  }

  /** The position in a list of tensors; -1 if there is none. */
  public long tensor() {
    return tensor;
  }
}
