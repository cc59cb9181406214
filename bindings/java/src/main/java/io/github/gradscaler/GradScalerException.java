// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * A call that failed because of memory, a device or a callback, not because of an argument or the state. The exception
 * of a callback is its cause. {@link #status()} is the kind of failure.
 */
public class GradScalerException extends RuntimeException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  /** The kind of failure. */
  private final Status status;

  /** Null if the failure is not about one. */
  private final FailedArgument argument;

  GradScalerException(Status status, String message, FailedArgument argument) {
    super(message);
    this.status = status;
    this.argument = argument;
  }

  @Override
  public final @Nullable FailedArgument argument() {
    return argument;
  }

  @Override
  public final Status status() {
    return status;
  }

  /** Called by native code. */
  static RuntimeException of(int code, byte[] message, String name, String field, long index, long tensor) {
    final Status status = Status.of(code);
    final FailedArgument argument = name != null ? new FailedArgument(name, field, index, tensor) : null;
    final String text = MethodNames.inMessage(Text.fromNative(message));
    switch (status) {
      case INVALID_ARGUMENT:
        return new InvalidArgumentException(text, argument);
      case BAD_STATE:
        return new BadStateException(text, argument);
      case OUT_OF_MEMORY:
        return new AllocationException(text, argument);
      case UNAVAILABLE:
        return new UnavailableException(text, argument);
      case UNSUPPORTED:
        return new UnsupportedException(text, argument);
      case DEVICE:
        return new DeviceException(text, argument);
      case SCALE_FLOOR:
        return new ScaleFloorException(text, argument);
      case SPIKES:
        return new SpikesException(text, argument);
      case CALLBACK:
        final GradScalerException failed = new GradScalerException(status, text, argument);
        failed.initCause(CallbackSlot.takeFailure());
        return failed;
      default:
        return new GradScalerException(status, text, argument);
    }
  }
}
