// SPDX-License-Identifier: Apache-2.0
namespace Gradscaler
{
  /// <summary>
  /// The policy of a GradScaler. Starts as PyTorch's; the library checks it when a scaler is made of it.
  /// </summary>
  public sealed partial class ScalerOptions
  {
    internal readonly NativeScalerOptions Handle = new NativeScalerOptions();

    /// <summary>PyTorch's policy.</summary>
    public ScalerOptions()
    {
    }

    /// <summary>The policy of another system.</summary>
    public ScalerOptions(Preset preset)
    {
      Handle.Preset((int)preset);
    }
  }
}
