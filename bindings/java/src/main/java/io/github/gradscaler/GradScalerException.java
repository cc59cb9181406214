// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * A call that failed for a reason that is neither an argument's nor the state's: memory, device, callback. As its cause
 * it has what a callback threw. {@link #status()} says what kind of failure it is.
 */
public class GradScalerException extends RuntimeException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  /** What kind of failure it is. */
  private final Status status;

  GradScalerException(Status status, String message) {
    super(message);
    this.status = status;
  }

  @Override
  public final Status status() {
    return status;
  }

  /** Called by native code. */
  static RuntimeException of(int code, byte[] message) {
    final Status status = Status.of(code);
    final String text = MethodNames.inMessage(Text.fromNative(message));
    switch (status) {
      case INVALID_ARGUMENT:
        return new InvalidArgumentException(text);
      case BAD_STATE:
        return new BadStateException(text);
      case OUT_OF_MEMORY:
        return new AllocationException(text);
      case UNAVAILABLE:
        return new UnavailableException(text);
      case UNSUPPORTED:
        return new UnsupportedException(text);
      case DEVICE:
        return new DeviceException(text);
      case SCALE_FLOOR:
        return new ScaleFloorException(text);
      case CALLBACK:
        final GradScalerException failed = new GradScalerException(status, text);
        failed.initCause(CallbackSlot.takeFailure());
        return failed;
      default:
        return new GradScalerException(status, text);
    }
  }
}
