// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * A call that failed, with the library's sentence for it, and as its cause what a callback threw. The subclasses say
 * what kind of failure it is; {@link #status()} says the same as a value.
 */
public class GradScalerException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** What kind of failure it is. */
  private final Status status;

  GradScalerException(Status status, String message) {
    super(message);
    this.status = status;
  }

  /**
   * What kind of failure it is.
   *
   * @return never null
   */
  public final Status status() {
    return status;
  }

  /** Called by the native code. */
  static GradScalerException of(int code, byte[] message) {
    final Status status = Status.of(code);
    final String text = Text.fromNative(message);
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
