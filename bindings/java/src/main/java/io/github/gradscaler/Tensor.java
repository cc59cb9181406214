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
   * The bytes of a direct buffer in native order from its position to its limit, which are read now. There must be at
   * least one, unless the buffer has no capacity.
   */
  public static Tensor of(ByteBuffer buffer, DType dtype) {
    Check.notNull(buffer, "buffer");
    Check.notNull(dtype, "dtype");
    if (buffer.remaining() % dtype.size() != 0) {
      throw new InvalidArgumentException(
          "buffer has " + buffer.remaining() + " bytes, which is no multiple of the " + dtype.size() + " of " + dtype);
    }
    return make(buffer, buffer.order(), 1, dtype);
  }

  /** The shorts that remain in a direct buffer, as {@link DType#FP16} or {@link DType#BF16}. */
  public static Tensor of(ShortBuffer buffer, DType dtype) {
    Check.notNull(buffer, "buffer");
    if (Check.notNull(dtype, "dtype").size() != Short.BYTES) {
      throw new InvalidArgumentException("dtype is " + dtype + ", whose elements are no shorts");
    }
    return make(buffer, buffer.order(), Short.BYTES, dtype);
  }

  /** The floats that remain in a direct buffer, as FP32. */
  public static Tensor of(FloatBuffer buffer) {
    return make(Check.notNull(buffer, "buffer"), buffer.order(), Float.BYTES, DType.FP32);
  }

  /** The doubles that remain in a direct buffer, as FP64. */
  public static Tensor of(DoubleBuffer buffer) {
    return make(Check.notNull(buffer, "buffer"), buffer.order(), Double.BYTES, DType.FP64);
  }

  /**
   * Memory that something else owns and that stays as long as it is used: a CUDA allocation, memory of native code. The
   * address is that of the first element, and may be 0 if count is 0; count may exceed 2^31. The library checks them
   * when the tensor is used.
   */
  public static Tensor at(long address, long count, DType dtype) {
    return new Tensor(address, count, Check.notNull(dtype, "dtype"), null, null, null, null);
  }

  /**
   * Memory of an object, which is kept alive as a buffer is: a JavaCPP pointer, an array or a tensor of a framework.
   * What frees its memory when it is closed must not be closed while the tensor is used. Memory of a buffer or segment
   * is refused once its arena is closed. Else as {@link #at(long, long, DType)}.
   */
  public static Tensor at(long address, long count, DType dtype, Object owner) {
    return of(address, count, Check.notNull(dtype, "dtype"), Check.notNull(owner, "owner"));
  }

  /**
   * New zeroed host memory, as long as something refers to the tensor or its buffer. At most what a ByteBuffer holds.
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

  private static Tensor of(long address, long count, DType dtype, Object owner) {
    return new Tensor(address, count, dtype, null, owner, Lifetime.of(owner), null);
  }

  static Tensor borrowed(NativeTensor from, Object owner) {
    return of(from.getData(), from.getCount(), DType.of(from.getDtype()), owner);
  }

  private static Tensor make(Buffer buffer, ByteOrder order, int elementBytes, DType dtype) {
    final long address = Memory.address(buffer, order, elementBytes, "buffer");
    final long count = (long) buffer.remaining() * elementBytes / dtype.size();
    if (count == 0 && buffer.capacity() > 0) {
      // Filled with put() and not rewound: an optimizer would step on nothing, without a word.
      throw new InvalidArgumentException("buffer has no elements between its position, " + buffer.position()
          + ", and its limit, " + buffer.limit() + ": call rewind() or clear() after filling it");
    }
    return of(address, count, dtype, buffer);
  }

  /** The same memory with a name for messages and reports; null for none. */
  public Tensor named(@Nullable String newName) {
    return new Tensor(address, count, dtype, newName, owner, lifetime, scales);
  }

  /**
   * The same memory as codes of optimizer state with their scales: one for each 32 elements, of {@link DType#FP8_E8M0},
   * of {@link DType#UINT8_LOG} {@link DType#INT16}, of FlashOptim's codes {@link DType#FP16}; null for none.
   */
  public Tensor withScales(@Nullable Tensor newScales) {
    final DType wanted = scaleDType();
    if (newScales != null && (newScales.dtype != wanted || newScales.count != scaleCount(count))) {
      throw new InvalidArgumentException("scales are " + newScales + ", " + count + " elements of " + dtype + " have "
          + (wanted == null ? "none" : scaleCount(count) + " of " + wanted));
    }
    return new Tensor(address, count, dtype, name, owner, lifetime, newScales);
  }

  /** The type of the scales; null if the type of the elements has none. */
  @Nullable DType scaleDType() {
    final int code = NativeCalls.scaleDtype(dtype.code());
    return code == 0 ? null : DType.of(code);
  }

  /** How many scales codes have: one for each 32 of them, also of less than 32. */
  public static long scaleCount(long count) {
    return count / SCALE_BLOCK + (count % SCALE_BLOCK == 0 ? 0 : 1);
  }

  /** Some of the elements; with scales, first is a multiple of 32. */
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

  /** Address of the first element, in memory of the device. */
  public long address() {
    return address;
  }

  /** Number of elements. */
  public long count() {
    return count;
  }

  /** Type of the elements. */
  public DType dtype() {
    return dtype;
  }

  /** The scales of codes; null if there are none. */
  public @Nullable Tensor scales() {
    return scales;
  }

  /** The name for messages and reports; null if it has none. */
  public @Nullable String name() {
    return name;
  }

  /** As {@link #bytes} of an FP32 tensor. */
  public FloatBuffer floats() {
    return bytes(DType.FP32).asFloatBuffer();
  }

  /** As {@link #bytes} of an FP64 tensor. */
  public DoubleBuffer doubles() {
    return bytes(DType.FP64).asDoubleBuffer();
  }

  private ByteBuffer bytes(DType wanted) {
    if (dtype != wanted) {
      throw new InvalidArgumentException("the tensor is of " + dtype + ", not of " + wanted);
    }
    return bytes();
  }

  /** A view of the memory, in native order, of a tensor that was allocated or made of a ByteBuffer. */
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

  /** Such as {@code Tensor(weight: 1000 x FP16 at 0x7f0012345680)}. */
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
        final String name = what + "[" + i + "]";
        final Tensor tensor = Check.notNull(tensors[i], name);
        tensor.requireUsable(name);
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
