// SPDX-License-Identifier: Apache-2.0
// Stub to compile what only .NET 5 and later have, which Mono's libraries lack. Signature: .NET 5, System.Half.
namespace System
{
  public struct Half
  {
    internal ushort Bits;

    public override string ToString()
    {
      return Bits.ToString("x4");
    }
  }
}
