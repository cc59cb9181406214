// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>Keeps an array where it is until nothing refers to this any more.</summary>
  internal class Pin
  {
    internal readonly IntPtr Address;
    private GCHandle handle;

    internal Pin(Array array)
    {
      handle = GCHandle.Alloc(array, GCHandleType.Pinned);
      Address = handle.AddrOfPinnedObject();
    }

    ~Pin()
    {
      if (handle.IsAllocated)
      {
        handle.Free();
      }
    }

    internal virtual Span<byte> Bytes => throw new InvalidArgumentException("the tensor was not made of an array");
  }

  internal sealed class Pin<T> : Pin where T : struct
  {
    private readonly T[] array;

    internal Pin(T[] array)
        : base(array)
    {
      this.array = array;
    }

    internal override Span<byte> Bytes => MemoryMarshal.AsBytes(new Span<T>(array));
  }

  /// <summary>
  /// A contiguous piece of device memory seen as elements of one type. Made of an array, which it keeps alive and in
  /// place; or of an address, with what owns its memory. Immutable.
  /// </summary>
  public sealed class Tensor
  {
    private const int ScaleBlock = 32;

    internal readonly object Owner;

    private Tensor(IntPtr address, long count, DType dtype, string name, object owner, Tensor scales = null)
    {
      Address = address;
      Count = count;
      DType = dtype;
      Name = name;
      Owner = owner;
      Scales = scales;
    }

    /// <summary>Address of the first element, in memory of the device.</summary>
    public IntPtr Address { get; private set; }

    /// <summary>Number of elements.</summary>
    public long Count { get; private set; }

    /// <summary>Type of the elements.</summary>
    public DType DType { get; private set; }

    /// <summary>The name for messages and reports; null if it has none.</summary>
    public string Name { get; private set; }

    /// <summary>The scales of codes of optimizer state; null if there are none.</summary>
    public Tensor Scales { get; private set; }

    /// <summary>Bytes of one element.</summary>
    public static int SizeOf(DType dtype) => DTypes.SizeOf(dtype);

    /// <summary>
    /// Memory that something else owns and that stays as long as it is used: a CUDA allocation, a VkDeviceAddress, a
    /// NativeArray.
    /// </summary>
    public static Tensor At(IntPtr address, long count, DType dtype)
    {
      SizeOf(dtype);
      return new Tensor(address, count, dtype, null, null);
    }

    /// <summary>
    /// Memory of an object, such as a tensor of a framework, which is kept alive as an array is. What frees its memory
    /// when it is disposed must not be disposed while the tensor is used. It is not pinned: an array is for Of.
    /// </summary>
    public static Tensor At(IntPtr address, long count, DType dtype, object owner)
    {
      SizeOf(dtype);
      return new Tensor(address, count, dtype, null, Check.NotNull(owner, "owner"));
    }

    /// <summary>All elements of an array, as Fp32.</summary>
    public static Tensor Of(float[] array) => Of(array, DType.Fp32);

    /// <summary>All elements of an array, as Fp64.</summary>
    public static Tensor Of(double[] array) => Of(array, DType.Fp64);

#if NET5_0_OR_GREATER
    /// <summary>All elements of an array, as Fp16.</summary>
    public static Tensor Of(Half[] array) => Of(array, DType.Fp16);
#endif

    /// <summary>
    /// All elements of an array: a float[] as Fp32, a double[] as Fp64, a Half[] as Fp16, a ushort[] or short[] as the
    /// bits of Fp16 or Bf16; or the bytes of a byte[] as any. Nothing is converted: other pairs are refused.
    /// </summary>
    public static Tensor Of<T>(T[] array, DType dtype) where T : struct
    {
      Check.NotNull(array, "array");
      long bytes = (long)array.Length * ElementSize<T>();
      int size = SizeOf(dtype);
      if (typeof(T) != typeof(byte) && !Holds<T>(dtype))
      {
        throw new InvalidArgumentException(
            $"array is a {typeof(T).Name}[], which does not hold {dtype}: "
            + "convert it with Ops.Cast, or pass its bytes as a byte[]");
      }
      if (bytes % size != 0)
      {
        throw new InvalidArgumentException($"array has {bytes} bytes, which is no multiple of the {size} of {dtype}");
      }
      var pin = new Pin<T>(array);
      return new Tensor(pin.Address, bytes / size, dtype, null, pin);
    }

    /// <summary>New zeroed host memory, as long as something refers to the tensor.</summary>
    public static Tensor Allocate(DType dtype, int count)
    {
      if (count < 0)
      {
        throw new InvalidArgumentException($"count is {count}");
      }
      // Doubles, because their array is aligned for every type.
      var pin = new Pin<double>(new double[((long)count * SizeOf(dtype) + 7) / 8]);
      return new Tensor(pin.Address, count, dtype, null, pin);
    }

    internal static Tensor Borrowed(NativeTensor from, object owner) =>
        new Tensor(from.Data, from.Count, (DType)from.Dtype, null, owner);

    internal IntPtr ScaleAddress => Scales == null ? IntPtr.Zero : Scales.Address;

    /// <summary>The same memory with a name for messages and reports; null for none.</summary>
    public Tensor Named(string name) => new Tensor(Address, Count, DType, name, Owner, Scales);

    /// <summary>
    /// The same memory as codes of optimizer state with their scales: one for each 32 elements, of Fp8E8m0, of
    /// Uint8Log Int16, of FlashOptim's codes Fp16; null for none.
    /// </summary>
    public Tensor WithScales(Tensor scales)
    {
      int wanted = NativeCalls.ScaleDtype((int)DType);
      if (scales != null && ((int)scales.DType != wanted || scales.Count != ScaleCount(Count)))
      {
        throw new InvalidArgumentException(
            $"scales has {scales.Count} elements of {scales.DType}; "
            + $"{Count} of {DType} have " + (wanted == 0 ? "none" : $"{ScaleCount(Count)} of {(DType)wanted}"));
      }
      return new Tensor(Address, Count, DType, Name, Owner, scales);
    }

    /// <summary>How many scales codes have: one for each 32 of them, also of less than 32.</summary>
    public static long ScaleCount(long count) => count / ScaleBlock + (count % ScaleBlock == 0 ? 0 : 1);

    /// <summary>Some of the elements; with scales, first is a multiple of 32.</summary>
    public Tensor Slice(long first, long count)
    {
      if (first < 0 || count < 0 || first > Count - count)
      {
        throw new InvalidArgumentException($"elements {first} + {count} are outside of the {Count}");
      }
      if (Scales != null && first % ScaleBlock != 0)
      {
        throw new InvalidArgumentException($"element {first} is within a group of 32 with one scale");
      }
      return new Tensor(new IntPtr(Address.ToInt64() + first * SizeOf(DType)), count, DType, Name, Owner,
                        Scales == null ? null : Scales.Slice(first / ScaleBlock, ScaleCount(count)));
    }

    /// <summary>The elements of a tensor that was made of an array or allocated.</summary>
    public Span<T> Span<T>() where T : struct
    {
      Pin pin = Owner as Pin ?? throw new InvalidArgumentException("the tensor was not made of an array");
      if (!Holds<T>(DType))
      {
        throw new InvalidArgumentException($"the tensor is of {DType}, whose elements are no {typeof(T).Name}");
      }
      int offset = (int)(Address.ToInt64() - pin.Address.ToInt64());
      return MemoryMarshal.Cast<byte, T>(pin.Bytes.Slice(offset, (int)Count * ElementSize<T>()));
    }

    /// <summary>Whether an element of the one is an element of the other, or 16 bits that carry it.</summary>
    private static bool Holds<T>(DType dtype)
    {
      if (typeof(T) == typeof(ushort) || typeof(T) == typeof(short))
      {
        return SizeOf(dtype) == sizeof(ushort);
      }
      // By name, because the assembly for netstandard2.0 has no Half, but can be given one.
      return typeof(T) == typeof(float) && dtype == DType.Fp32 || typeof(T) == typeof(double) && dtype == DType.Fp64
             || typeof(T).FullName == "System.Half" && dtype == DType.Fp16;
    }

    internal static int ElementSize<T>() where T : struct => Element<T>.Size;

    private static class Element<T> where T : struct
    {
      // Marshal.SizeOf is the size of a structure in native code, not in an array.
      internal static readonly int Size = MemoryMarshal.AsBytes(new Span<T>(new T[1])).Length;
    }

    /// <summary>For one call: to be disposed after it. It keeps the memory of the tensors alive.</summary>
    internal static NativeTensorArray Array(Tensor[] tensors, string what, DeviceType device)
    {
      Check.NotNull(tensors, what);
      var array = new NativeTensorArray(tensors.Length);
      for (int i = 0; i < tensors.Length; i++)
      {
        Tensor tensor = Check.NotNull(tensors[i], what + "[" + i + "]");
        Owners.RequireUsable(tensor, what, i);
        if (device == DeviceType.Vulkan && (tensor.Owner is Pin || tensor.Scales?.Owner is Pin))
        {
          HostMemory.Pass(tensor, device, what + "[" + i + "]");
        }
        array.Add(tensor.Address, tensor.Count, (int)tensor.DType, tensor.Name);
        if (tensor.Scales != null)
        {
          array.SetScales(tensor.ScaleAddress);
        }
      }
      var owners = new Owners(tensors);
      owners.Hold();
      array.Kept = owners;
      return array;
    }
  }
}
