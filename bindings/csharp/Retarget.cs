// SPDX-License-Identifier: Apache-2.0
// Makes an assembly that mcs has compiled fit for .NET: under Mono the types of spans are in mscorlib, everywhere else
// in System.Memory. Run by the build and the tests: Retarget.exe <input> <output>. The assemblies
// that the input refers to are in its folder.
using System;
using System.IO;
using System.Linq;
using Mono.Cecil;

internal static class Retarget
{
  private static readonly string[] Moved = {
    "System.Span`1",
    "System.ReadOnlySpan`1",
    "System.Runtime.InteropServices.MemoryMarshal",
  };

  private static void Main(string[] arguments)
  {
    var resolver = new DefaultAssemblyResolver();
    resolver.AddSearchDirectory(Path.GetDirectoryName(Path.GetFullPath(arguments[0])));
    ModuleDefinition module =
        ModuleDefinition.ReadModule(arguments[0], new ReaderParameters { AssemblyResolver = resolver });
    // The oldest version with all members in use: that of the package System.Memory 4.5.0.
    var memory = new AssemblyNameReference("System.Memory", new Version(4, 0, 1, 0)) {
      PublicKeyToken = new byte[] { 0xcc, 0x7b, 0x13, 0xff, 0xcd, 0x2d, 0xdd, 0x51 }
    };
    module.AssemblyReferences.Add(memory);
    foreach (TypeReference type in module.GetTypeReferences().Where(t => Moved.Contains(t.FullName)))
    {
      type.Scope = memory;
    }
    module.Write(arguments[1]);
  }
}
