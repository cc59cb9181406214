// SPDX-License-Identifier: Apache-2.0
using System;

namespace Gradscaler
{
  /// <summary>
  /// A plan over tensors, validated once and reused every step. Keeps the arrays of its tensors alive and in place, and
  /// so does every optimizer made of it, also after the list is disposed. Use it from one thread at a time.
  /// </summary>
  public sealed class TensorList : IDisposable
  {
    private readonly DeviceType device;
    private NativeTensorList handle;

    /// <summary>
    /// Plans work over tensors, perhaps none, which must not overlap. Throws InvalidArgumentException naming the
    /// tensor.
    /// </summary>
    public TensorList(Context context, params Tensor[] tensors)
    {
      NativeContext native = Context.HandleOf(context);
      device = context.Type;
      using (NativeTensorArray array = Tensor.Array(tensors, "tensors", device))
      {
        handle = new NativeTensorList(native, array);
      }
      Owners = new Owners(tensors);
      handle.Kept = new object[] { Owners, context.Callbacks };
      handle.Uses.Hold(Owners);
      handle.Uses.Count(NativeMemory.OfList(tensors.Length));
    }

    /// <summary>Shared with the optimizers made of the list; replaced when the list gets other memory.</summary>
    internal Owners Owners { get; private set; }

    internal NativeTensorList Handle
    {
      get
      {
        NativeTensorList list = Check.Open(handle, "TensorList");
        Owners.RequireUsable();
        return list;
      }
    }

    internal static NativeTensorList HandleOf(TensorList list, string name) => Check.NotNull(list, name).Handle;

    /// <summary>Number of tensors.</summary>
    public long Count => Handle.Count();

    /// <summary>A tensor as the list knows it now, which keeps the memory alive as the list does.</summary>
    public Tensor this[long index]
    {
      get
      {
        string name = Handle.GetName(index);
        return Owners[index].Named(name.Length == 0 ? null : name);
      }
    }

    /// <summary>Points the list at new tensors of the same counts and dtypes. On error it keeps its old ones.</summary>
    public void SetTensors(Tensor[] tensors, IntPtr stream = default)
    {
      // Not Handle: this is the way out if the old memory has gone.
      NativeTensorList list = Check.Open(handle, "TensorList");
      using (NativeTensorArray array = Tensor.Array(tensors, "tensors", device))
      {
        for (int i = 0; i < tensors.Length && i < Owners.Count; i++)
        {
          RequireSameShape(i, tensors[i]);
        }
        list.SetPointers(array, stream);
      }
      Owners.Set(tensors);
    }

    /// <summary>Multiplies the gradients of the list by a float in device memory too, such as 1 over the number of
    /// tokens: a scaler's check, clipping and step, and steps without a scaler, see gradients times inverse scale times
    /// factor. It is read at the first check of an iteration. Null: no factor. Throws BadStateException if the list was
    /// checked or unscaled since the last update.</summary>
    public void SetDeviceFactor(DeviceScalar factor)
    {
      Handle.SetDeviceFactor(DeviceScalar.Floats(factor, "factor"));
      Owners.Factor = factor;
    }

    /// <summary>Keeps the L2 norm of every gradient of the list: each check of a scaler writes a double per tensor, of
    /// the unscaled gradients before clipping, from the sums that it makes anyway; NaN or inf for a tensor with a NaN or
    /// inf, 0 for an absent one. Null: not kept. Throws BadStateException if the list was checked or unscaled since the
    /// last update.</summary>
    public void SetDeviceNorms(DeviceScalar norms)
    {
      Handle.SetDeviceNorms(DeviceScalar.Doubles(norms, Owners.Count, "norms"), Owners.Count);
      Owners.Norms = norms;
    }

    /// <summary>Sets which tensors of a list of gradients take part from now on. An absent one counts as empty: it is
    /// neither read nor written, and its parameter, state and step count stay as they are.</summary>
    public void SetPresent(bool[] present, IntPtr stream = default)
    {
      using (var numbers = new NativeNumbers(present.Length))
      {
        for (int i = 0; i < present.Length; i++)
        {
          numbers.Set(i, present[i] ? 1 : 0);
        }
        Handle.SetPresent(numbers, stream);
      }
    }

    /// <summary>The library takes addresses only, so that it cannot see a shorter array.</summary>
    private void RequireSameShape(int index, Tensor tensor)
    {
      Tensor old = Owners[index];
      if (old.Count != tensor.Count || old.DType != tensor.DType)
      {
        throw new InvalidArgumentException(
            $"tensors[{index}] has count {tensor.Count} and dtype {tensor.DType}, "
            + $"the list has {old.Count} and {old.DType}");
      }
      if (old.ScaleAddress != tensor.ScaleAddress)
      {
        throw new InvalidArgumentException($"tensors[{index}] has other scales than the list: make a new list");
      }
    }

    /// <summary>Looks at every element of every tensor. Blocks.</summary>
    public Diagnosis Diagnose(IntPtr stream = default) => new Diagnosis(Handle.Diagnose(stream));

    /// <summary>Destroys it after the calls in progress on other threads. Does nothing the second time.</summary>
    public void Dispose() => System.Threading.Interlocked.Exchange(ref handle, null)?.Dispose();
  }

  /// <summary>What TensorList.Diagnose found: for each tensor counts, extremes and a histogram of exponents.</summary>
  public sealed class Diagnosis
  {
    /// <summary>Bins of an exponent histogram.</summary>
    public const int ExponentBins = NativeCalls.EXPONENT_BINS;

    /// <summary>Exponent of bin 0: bin b counts the values x with floor(log2(|x|)) == b + ExponentMin.</summary>
    public const int ExponentMin = NativeCalls.EXPONENT_MIN;

    private readonly NativeDiagnoses diagnoses;

    internal Diagnosis(NativeDiagnoses diagnoses)
    {
      this.diagnoses = diagnoses;
    }

    /// <summary>Number of tensors.</summary>
    public long Count => diagnoses.Count();

    /// <summary>Statistics of one tensor.</summary>
    public TensorDiagnosis this[long index]
    {
      get
      {
        using (NativeTensorDiagnosis one = diagnoses.Get(index))
        {
          return new TensorDiagnosis(one);
        }
      }
    }

    /// <summary>Exponents of the finite non-zero values of one tensor: ExponentBins counts.</summary>
    public long[] Histogram(long index)
    {
      var bins = new long[ExponentBins];
      for (int i = 0; i < bins.Length; i++)
      {
        bins[i] = diagnoses.Histogram(index, i);
      }
      return bins;
    }

    /// <summary>
    /// Recommends a loss scale for all tensors together, of gradients taken at a scale and computed in a dtype.
    /// </summary>
    public Recommendation Recommend(float currentScale, DType dtype)
    {
      using (NativeRecommendation one = diagnoses.Recommend(currentScale, (int)dtype))
      {
        return new Recommendation(one);
      }
    }
  }
}
