// SPDX-License-Identifier: Apache-2.0
namespace Gradscaler
{
  /// <summary>Hyper-parameters of an Optimizer. Start as the defaults of the kind.</summary>
  public sealed partial class OptimizerOptions
  {
    internal readonly NativeOptimizerOptions Handle;

    /// <summary>The defaults of a kind.</summary>
    public OptimizerOptions(OptimizerKind kind)
    {
      Handle = new NativeOptimizerOptions((int)kind);
    }

    /// <summary>The kind of optimizer.</summary>
    public OptimizerKind Kind => (OptimizerKind)Handle.Kind;
  }
}
