// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.ShortBuffer;

/**
 * A contiguous piece of device memory seen as elements of one type. Made of a direct buffer, from its position to its
 * limit, which it keeps alive; or of an address, with what owns its memory. On Java 22 and later also of a native
 * MemorySegment: {@code Tensor.of(segment, dtype)}. Immutable.
 */
public final class Tensor extends SegmentTensors {
  private static final int SCALE_BLOCK = 32;
  private final long address;
  private final long count;
  private final DType dtype;
  private final String name;
  private final Object owner;
  /** Null if the memory stays as long as its owner. */
  private final Lifetime lifetime;
  private final Tensor scales;

  private Tensor(long address, long count, DType dtype, String name, Object owner, Lifetime lifetime, Tensor scales) {
    this.address = address;
    this.count = count;
    this.dtype = dtype;
    this.name = name;
    this.owner = owner;
    this.lifetime = lifetime;
    this.scales = scales;
  }

  /**
   * The remaining bytes of a direct buffer in native order.
   *
   * @param buffer what to look at; its position and limit are read now, and unless it has no capacity there must be
   *     something between them
   * @param dtype what its bytes are
   * @return a new tensor
   */
  public static Tensor of(ByteBuffer buffer, DType dtype) {
    Check.notNull(buffer, "buffer");
    Check.notNull(dtype, "dtype");
    if (buffer.remaining() % dtype.size() != 0) {
      throw new InvalidArgumentException(
          "buffer has " + buffer.remaining() + " bytes, which is no multiple of the " + dtype.size() + " of " + dtype);
    }
    return make(buffer, buffer.order(), 1, buffer.remaining() / dtype.size(), dtype);
  }

  /**
   * The remaining elements of a direct buffer in native order.
   *
   * @param buffer what to look at
   * @param dtype {@link DType#FP16} or {@link DType#BF16}
   * @return a new tensor
   */
  public static Tensor of(ShortBuffer buffer, DType dtype) {
    Check.notNull(buffer, "buffer");
    if (Check.notNull(dtype, "dtype").size() != Short.BYTES) {
      throw new InvalidArgumentException("dtype is " + dtype + ", whose elements are no shorts");
    }
    return make(buffer, buffer.order(), Short.BYTES, buffer.remaining(), dtype);
  }

  /**
   * The remaining elements of a direct buffer in native order, as FP32.
   *
   * @param buffer what to look at
   * @return a new tensor
   */
  public static Tensor of(FloatBuffer buffer) {
    Check.notNull(buffer, "buffer");
    return make(buffer, buffer.order(), Float.BYTES, buffer.remaining(), DType.FP32);
  }

  /**
   * The remaining elements of a direct buffer in native order, as FP64.
   *
   * @param buffer what to look at
   * @return a new tensor
   */
  public static Tensor of(DoubleBuffer buffer) {
    Check.notNull(buffer, "buffer");
    return make(buffer, buffer.order(), Double.BYTES, buffer.remaining(), DType.FP64);
  }

  /**
   * Memory that something else owns and that stays as long as it is used: a CUDA allocation, memory of native code.
   *
   * @param address of the first element; may be 0 if count is 0
   * @param count number of elements; may exceed 2^31
   * @param dtype what they are
   * @return a new tensor; the library checks it when it is used
   */
  public static Tensor at(long address, long count, DType dtype) {
    return new Tensor(address, count, Check.notNull(dtype, "dtype"), null, null, null, null);
  }

  /**
   * Memory of an object, which is kept alive as a buffer is: a JavaCPP pointer, an array or a tensor of a framework. What
   * frees its memory when it is closed must not be closed while the tensor is used. Memory of a buffer or segment is
   * refused once its arena is closed.
   *
   * @param address of the first element; may be 0 if count is 0
   * @param count number of elements; may exceed 2^31
   * @param dtype what they are
   * @param owner what keeps the memory valid as long as something refers to it
   * @return a new tensor; the library checks it when it is used
   */
  public static Tensor at(long address, long count, DType dtype, Object owner) {
    return of(address, count, Check.notNull(dtype, "dtype"), null, Check.notNull(owner, "owner"));
  }

  /**
   * New zeroed host memory, as long as something refers to the tensor or its buffer.
   *
   * @param dtype what to hold
   * @param count how many; at most what a ByteBuffer holds
   * @return a new tensor
   */
  public static Tensor allocate(DType dtype, int count) {
    Check.notNull(dtype, "dtype");
    final long bytes = (long) count * dtype.size();
    // alignedSlice cuts both ends to multiples of its unit.
    if (count < 0 || bytes > Integer.MAX_VALUE - 128) {
      throw new InvalidArgumentException("count is " + count + ", which no ByteBuffer holds");
    }
    final ByteBuffer buffer = ByteBuffer.allocateDirect((int) bytes + 128).alignedSlice(64);
    buffer.limit((int) bytes);
    return of(buffer.slice().order(ByteOrder.nativeOrder()), dtype);
  }

  private static Tensor of(long address, long count, DType dtype, String name, Object owner) {
    return new Tensor(address, count, dtype, name, owner, Lifetime.of(owner), null);
  }

  static Tensor borrowed(NativeTensor from, Object owner) {
    return of(from.getData(), from.getCount(), DType.of(from.getDtype()), null, owner);
  }

  private static Tensor make(Buffer buffer, ByteOrder order, int elementBytes, long count, DType dtype) {
    final long address = Memory.address(buffer, order, elementBytes, "buffer");
    if (count == 0 && buffer.capacity() > 0) {
      // Filled with put() and not rewound: an optimizer would step on nothing, without a word.
      throw new InvalidArgumentException("buffer has no elements between its position, " + buffer.position()
          + ", and its limit, " + buffer.limit() + ": call rewind() or clear() after filling it");
    }
    return of(address, count, dtype, null, buffer);
  }

  /**
   * The same memory with a name for messages and reports.
   *
   * @param newName null for none
   * @return a new tensor
   */
  public Tensor named(@Nullable String newName) {
    return new Tensor(address, count, dtype, newName, owner, lifetime, scales);
  }

  /**
   * The same memory as codes of optimizer state that their scales multiply.
   *
   * @param newScales one for each 32 elements, of {@link DType#FP8_E8M0}, of FlashOptim's codes {@link DType#FP16}; null
   *     for none
   * @return a new tensor
   */
  public Tensor withScales(@Nullable Tensor newScales) {
    final DType wanted =
        dtype == DType.INT8_SOFTSIGN || dtype == DType.UINT8_SQRT ? DType.FP16 : DType.FP8_E8M0;
    if (newScales != null && (newScales.dtype != wanted || newScales.count != scaleCount(count))) {
      throw new InvalidArgumentException("scales are " + newScales + ", " + count + " elements have "
          + scaleCount(count) + " of " + wanted);
    }
    return new Tensor(address, count, dtype, name, owner, lifetime, newScales);
  }

  /**
   * How many scales codes have.
   *
   * @param count the number of codes
   * @return one for each 32 of them, also of less than 32
   */
  public static long scaleCount(long count) {
    return count / SCALE_BLOCK + (count % SCALE_BLOCK == 0 ? 0 : 1);
  }

  /**
   * Some of the elements.
   *
   * @param first index of the first one; a multiple of 32 if there are scales
   * @param length how many
   * @return a new tensor over the same memory
   */
  public Tensor slice(long first, long length) {
    if (first < 0 || length < 0 || first > count - length) {
      throw new InvalidArgumentException("elements " + first + " + " + length + " are outside of the " + count);
    }
    if (scales != null && first % SCALE_BLOCK != 0) {
      throw new InvalidArgumentException("element " + first + " is within a group of 32 with one scale");
    }
    return new Tensor(address + first * dtype.size(), length, dtype, name, owner, lifetime,
        scales == null ? null : scales.slice(first / SCALE_BLOCK, scaleCount(length)));
  }

  /**
   * Address of the first element.
   *
   * @return an address of the device
   */
  public long address() {
    return address;
  }

  /**
   * Number of elements.
   *
   * @return as given
   */
  public long count() {
    return count;
  }

  /**
   * Type of the elements.
   *
   * @return never null
   */
  public DType dtype() {
    return dtype;
  }

  /**
   * The scales of codes.
   *
   * @return null if there are none
   */
  public @Nullable Tensor scales() {
    return scales;
  }

  /**
   * The name for messages and reports.
   *
   * @return null if it has none
   */
  public @Nullable String name() {
    return name;
  }

  /**
   * The floats of an FP32 tensor that was allocated or made of a ByteBuffer.
   *
   * @return a view of its memory, in native order
   */
  public FloatBuffer floats() {
    return bytes(DType.FP32).asFloatBuffer();
  }

  /**
   * The doubles of an FP64 tensor that was allocated or made of a ByteBuffer.
   *
   * @return a view of its memory, in native order
   */
  public DoubleBuffer doubles() {
    return bytes(DType.FP64).asDoubleBuffer();
  }

  private ByteBuffer bytes(DType wanted) {
    if (dtype != wanted) {
      throw new InvalidArgumentException("the tensor is of " + dtype + ", not of " + wanted);
    }
    return bytes();
  }

  /**
   * The bytes of a tensor that was allocated or made of a ByteBuffer.
   *
   * @return a view of its memory, in native order
   */
  public ByteBuffer bytes() {
    if (!(owner instanceof ByteBuffer)) {
      throw new InvalidArgumentException("the tensor was not made of a ByteBuffer");
    }
    final ByteBuffer view = ((ByteBuffer) owner).duplicate();
    final long first = address - NativeCallsJNI.bufferAddress(view);
    if (first < 0 || count > (view.capacity() - first) / dtype.size()) {
      throw new InvalidArgumentException("the tensor does not lie in the ByteBuffer that owns it");
    }
    // The caller may have moved its position and limit meanwhile.
    view.clear().position((int) first).limit((int) (first + count * dtype.size()));
    return view.slice().order(ByteOrder.nativeOrder());
  }

  Object owner() {
    return owner;
  }

  long scaleAddress() {
    return scales == null ? 0 : scales.address;
  }

  /** Whether its memory or that of its scales can go although this is referred to. */
  boolean canGo() {
    return lifetime != null || scales != null && scales.canGo();
  }

  void requireUsable(String what) {
    Lifetime.requireUsable(lifetime, what);
    if (scales != null) {
      scales.requireUsable(what);
    }
  }

  /**
   * A short description, for messages.
   *
   * @return such as {@code Tensor(weight: 1000 x FP16 at 0x7f0012345680)}
   */
  @Override
  public String toString() {
    return "Tensor(" + (name == null ? "" : name + ": ") + count + " x " + dtype + " at 0x" + Long.toHexString(address)
        + ")";
  }

  /** For one call: to be closed after it. It keeps the memory of the tensors alive. */
  static NativeTensorArray array(Tensor[] tensors, String what) {
    Check.notNull(tensors, what);
    final NativeTensorArray array = new NativeTensorArray(tensors.length);
    try {
      for (int i = 0; i < tensors.length; i++) {
        final Tensor tensor = Check.notNull(tensors[i], what + "[" + i + "]");
        tensor.requireUsable(what + "[" + i + "]");
        array.add(tensor.address, tensor.count, tensor.dtype.code(), tensor.name);
        if (tensor.scales != null) {
          array.setScales(tensor.scaleAddress());
        }
      }
      array.keep((Object[]) tensors.clone());
      array.hold(new Owners.States(tensors));
      return array;
    } catch (RuntimeException e) {
      array.close();
      throw e;
    }
  }
}
